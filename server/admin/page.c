/* The status page: one HTML document without anything from elsewhere, readable without scripts.
 *
 * Invariants:
 *  1. Every text that is not a literal of this file passes add_escaped().
 *  2. Script and style carry the nonce; the answer's policy forbids all others.
 *  3. The page is made whole by the server; the script only refreshes the same numbers from
 * /v1/status.
 *
 * Life: a pure function over a text. Failure: a text that is too small says `over`; the caller
 * answers 500. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/admin.h"
#include "units.h"

enum { CHART_WIDTH = 240, CHART_HEIGHT = 36 };

static const char style[] =
    ":root{color-scheme:light dark;"
    "--b:#fff;--f:#1c2127;--m:#667080;--l:#dde2e8;--a:#0b6bcb;--w:#b3261e}"
    "@media(prefers-color-scheme:dark){:root{--b:#14181d;--f:#e6e9ed;--m:#98a2ae;"
    "--l:#2c333b;--a:#6db3f2;--w:#f2867e}}"
    "body{font:15px/1.45 system-ui,sans-serif;background:var(--b);color:var(--f);"
    "max-width:60rem;margin:2rem auto;padding:0 1rem}h1{font-size:1.1rem;font-weight:600;margin:0}"
    "h2{font-size:.95rem;margin:1.6rem 0 .4rem}"
    ".m{color:var(--m)}.big{font-size:2.6rem;font-weight:650;margin:.4rem 0 0}"
    ".four{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:1rem;"
    "margin-top:1rem}.four b{display:block;font-size:1.3rem;font-weight:600}"
    "svg{width:100%;height:36px;display:block}"
    "polyline{fill:none;stroke:var(--a);stroke-width:1.5;vector-effect:non-scaling-stroke}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .8rem .25rem 0;"
    "border-bottom:1px solid var(--l);font-weight:400}th{color:var(--m)}"
    ".bar{background:var(--l);color:var(--a);height:.6rem;min-width:8rem}"
    ".bad{color:var(--w)}code,pre{font:13px ui-monospace,monospace;"
    "white-space:pre-wrap;overflow-wrap:anywhere}";

/* Shows numbers as units.c does; a chart gets a point every 10 s and keeps 30, as the server's
 * window. */
static const char script[] =
    "'use strict';const $=i=>document.getElementById(i),"
    "un=(n,st,us)=>{let i=0;for(;n>=st&&i<us.length-1;i++)n/=st;return[n,us[i]]},"
    "rate=n=>{const[v,u]=un(n,1000,['B/s','KB/s','MB/s','GB/s','TB/s']);"
    "return v.toFixed(v>=100||u=='B/s'?0:v<10?2:1)+' '+u},"
    "size=n=>{const[v,u]=un(n,1024,['B','KiB','MiB','GiB','TiB','PiB']);return "
    "v.toFixed(u=='B'?0:v<10?2:1)+' '+u},"
    "ms=n=>n>=1000?(n/1000).toFixed(2)+' s':n.toFixed(n<100?1:0)+' ms',"
    "pc=(r,d)=>(100*r).toFixed(d)+' %',"
    "set=(i,x)=>{const e=$(i);if(e)e.textContent=x},"
    "dur=s=>{const d=s/86400|0,h=(s/3600|0)%24,m=(s/60|0)%60,p=x=>String(x).padStart(2,'0');"
    "return d?d+'d '+h+'h':h?h+'h '+p(m)+'m':m?m+'m '+p(s%60)+'s':s+'s'};"
    "const pts=[0,1,2,3].map(i=>{const e=$('c'+i);"
    "return e?e.dataset.v.split(' ').filter(x=>x).map(Number):[]});"
    "const draw=i=>{const a=pts[i],top=Math.max(...a,1e-9),n=Math.max(a.length-1,1);"
    "$('c'+i).setAttribute('points',"
    "a.map((v,k)=>(240*k/n).toFixed(1)+','+(35-34*v/top).toFixed(1)).join(' '))};"
    "let last=0;const add=v=>{if(Date.now()-last<9500)return;last=Date.now();"
    "v.forEach((x,i)=>{pts[i].push(x);if(pts[i].length>30)pts[i].shift();draw(i)})};"
    "const tick=async()=>{try{"
    "const s=await(await fetch('/v1/status',{cache:'no-store'})).json(),r=s.last_5m,"
    "b=s.disks;"
    "set('state',s.state+', up '+dur(s.uptime_s));set('gpu',pc(r.stall_ratio,1));"
    "set('n0',rate(r.sent_bytes_per_s));set('n1',rate(r.upstream_bytes_per_s));"
    "set('n2',pc(r.hit_bytes_ratio,1));set('n3',ms(r.p99_ms));"
    "s.upstreams.forEach((u,i)=>{"
    "set('up'+i,u.up?'answering, '+ms(u.rtt_ms)+(u.throttled?', throttled':''):'not answering');"
    "$('up'+i).className=u.up?'':'bad'});"
    "set('objects',String(s.cache.objects).replace(/\\B(?=(\\d{3})+$)/g,' '));"
    "b.forEach((d,i)=>{set('du'+i,size(d.used));set('df'+i,size(Math.max(0,d.capacity-d.used)));"
    "set('ds'+i,d.state+(d.errors?', '+d.errors+' errors':''));"
    "const e=$('db'+i);"
    "if(e)e.setAttribute('width',d.capacity?Math.min(100,100*d.used/d.capacity):0)});"
    "const c=$('clients');"
    "c.replaceChildren(...s.clients.map(x=>{const tr=document.createElement('tr');"
    "[x.host,x.agent,dur(x.seconds_ago)+' ago'].forEach(v=>{tr.insertCell().textContent=v});"
    "return tr}));"
    "set('warnings',s.warnings.join('\\n')||'none');"
    "add([r.sent_bytes_per_s,r.upstream_bytes_per_s,r.hit_bytes_ratio,r.p99_ms])"
    "}catch(e){set('state','not reachable')}};last=Date.now();setInterval(tick,2000)";

static void add_escaped(struct text *t, const char *value)
{
    for (struct span rest = span_of(value); rest.len;) {
        size_t len = span_utf8(rest);
        switch (rest.at[0]) {
        case '&': text_adds(t, "&amp;"); break;
        case '<': text_adds(t, "&lt;"); break;
        case '>': text_adds(t, "&gt;"); break;
        case '"': text_adds(t, "&quot;"); break;
        case '\'': text_adds(t, "&#39;"); break;
        default: text_add_printable(t, span_make(rest.at, len ? len : 1), 4); break;
        }
        rest = span_from(rest, len ? len : 1);
    }
}

static void add_head(struct text *t, const struct status *s, const char *nonce)
{
    text_adds(t, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>headpond "
                 "on ");
    add_escaped(t, s->name);
    text_adds(t, "</title><meta name=\"viewport\" content=\"width=device-width\">"
                 "<noscript><meta http-equiv=\"refresh\" content=\"10\"></noscript><style "
                 "nonce=\"");
    add_escaped(t, nonce);
    text_addf(t, "\">%s</style></head><body>\n<h1>headpond " HEADPOND_VERSION " on ", style);
    add_escaped(t, s->name);
    text_adds(t, "</h1><div class=\"m\" id=\"state\">");
    add_escaped(t, s->state);
    text_adds(t, ", up ");
    units_duration(t, s->uptime_s);
    text_adds(t, "</div>\n<p class=\"big\">GPUs waited <span id=\"gpu\">");
    units_percent(t, s->last.stall_ratio, 1);
    text_adds(t, "</span></p><div class=\"m\">of client time for upstream, in the last 5 "
                 "minutes</div>\n");
}

/* ---- four numbers ---- */

static double chart_value(const struct rates *r, unsigned chart)
{
    const double value[PAGE_SERIES] = {
        r->sent_bytes_per_s, r->upstream_bytes_per_s, r->hit_bytes_ratio, r->p99_ms,
    };
    return value[chart];
}

static void add_chart(struct text *t, const struct rates *series, unsigned count, unsigned chart)
{
    double top = 1e-9;

    for (unsigned i = 0; i < count; i++)
        top = chart_value(&series[i], chart) > top ? chart_value(&series[i], chart) : top;
    text_addf(t, "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
                 "<polyline id=\"c%u\" data-v=\"", CHART_WIDTH, CHART_HEIGHT, chart);
    for (unsigned i = 0; i < count; i++)
        text_addf(t, "%s%.4g", i ? " " : "", chart_value(&series[i], chart));
    text_adds(t, "\" points=\"");
    unsigned steps = count > 1 ? count - 1 : 1;
    for (unsigned i = 0; i < count; i++)
        text_addf(t, "%s%.1f,%.1f", i ? " " : "", (double)CHART_WIDTH * i / steps,
                  CHART_HEIGHT - 1 - (CHART_HEIGHT - 2) * chart_value(&series[i], chart) / top);
    text_adds(t, "\"/></svg></div>\n");
}

static void add_four(struct text *t, const struct status *s, const struct rates *series,
                     unsigned count)
{
    static const char *const labels[PAGE_SERIES] = {"to clients", "from upstream",
                                                    "of bytes were hits",
                                                    "99th percentile of a request"};
    text_adds(t, "<div class=\"four\">");
    for (unsigned i = 0; i < PAGE_SERIES; i++) {
        double n = chart_value(&s->last, i);
        text_addf(t, "<div><b id=\"n%u\">", i);
        if (i < 2)
            units_rate(t, n, n);
        else if (i == 2)
            units_percent(t, n, 1);
        else
            units_ms(t, n);
        text_addf(t, "</b><span class=\"m\">%s</span>", labels[i]);
        add_chart(t, series, count, i);
    }
    text_adds(t, "</div>\n");
}

/* ---- tables ---- */

static void add_disk(struct text *t, const struct cache_disk_status *d, unsigned i)
{
    double part = d->capacity_bytes ? (double)d->used_bytes / (double)d->capacity_bytes : 0;
    uint64_t spare = d->capacity_bytes - min_u64(d->used_bytes, d->capacity_bytes);

    text_adds(t, "<tr><td>");
    add_escaped(t, d->dir);
    text_addf(t, "</td><td><svg class=\"bar\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" "
                 "aria-hidden=\"true\">"
                 "<rect id=\"db%u\" height=\"1\" width=\"%.1f\" "
                 "fill=\"currentColor\"/></svg></td><td id=\"du%u\">",
              i, 100 * (part < 1 ? part : 1), i);
    units_bytes(t, d->used_bytes);
    text_addf(t, "</td><td id=\"df%u\">", i);
    units_bytes(t, spare);
    text_addf(t, "</td><td id=\"ds%u\"%s>%s", i, d->state == DISK_UP ? "" : " class=\"bad\"",
              disk_state_name(d->state));
    if (d->errors)
        text_addf(t, ", %llu errors", (unsigned long long)d->errors);
    text_adds(t, "</td></tr>");
}

static void add_disks(struct text *t, const struct status *s)
{
    text_adds(t, "<h2>Cache: <span id=\"objects\">");
    units_count(t, s->cache.objects);
    text_adds(t, "</span> objects</h2><table><tr><th>directory</th><th></th><th>used</th>"
                 "<th>free</th><th>state</th></tr>");
    for (unsigned i = 0; i < s->cache.disk_count && i < ARRAY_COUNT(s->cache.disk); i++)
        add_disk(t, &s->cache.disk[i], i);
    text_adds(t, "</table>\n");
}

static void add_upstream(struct text *t, const struct status *s, unsigned i)
{
    const struct origin_status *u = &s->upstream[i];

    text_adds(t, "<div>");
    if (s->upstream_count > 1) {
        add_escaped(t, u->name);
        text_adds(t, ": ");
    }
    text_adds(t, "<code>");
    add_escaped(t, u->endpoint);
    text_addf(t, "</code> <span id=\"up%u\"%s>", i, u->up ? "" : " class=\"bad\"");
    if (u->up) {
        text_adds(t, "answering, ");
        units_ms(t, u->rtt_ms);
        text_adds(t, u->throttled ? ", throttled" : "");
    } else {
        text_adds(t, "not answering");
    }
    text_adds(t, "</span></div>\n");
}

static void add_clients(struct text *t, const struct status *s)
{
    text_adds(t, "<h2>Clients of the last 5 minutes</h2><table id=\"clients\">");
    for (unsigned i = 0; i < s->client_count; i++) {
        text_adds(t, "<tr><td>");
        add_escaped(t, s->client[i].host);
        text_adds(t, "</td><td>");
        add_escaped(t, s->client[i].agent);
        text_adds(t, "</td><td>");
        units_duration(t, s->now_wall_s - min_u64(s->client[i].last_wall_s, s->now_wall_s));
        text_adds(t, " ago</td></tr>");
    }
    text_adds(t, "</table>\n<h2>Warnings</h2><pre id=\"warnings\">");
    for (unsigned i = 0; i < s->warning_count; i++) {
        text_adds(t, i ? "\n" : "");
        add_escaped(t, s->warning[i]);
    }
    text_adds(t, s->warning_count ? "</pre>\n" : "none</pre>\n");
}

static void add_foot(struct text *t, const struct status *s, const char *nonce)
{
    text_adds(t, "<h2>Point a client here</h2><pre>export AWS_ENDPOINT_URL_S3=");
    add_escaped(t, s->s3_url);
    text_adds(t, " AWS_ENDPOINT_URL=");
    add_escaped(t, s->s3_url);
    text_adds(t, " S3_ENDPOINT_URL=");
    add_escaped(t, s->s3_url);
    text_adds(t, "\naws --endpoint-url ");
    add_escaped(t, s->s3_url);
    text_adds(t, " s3 ls        # older tools, and s5cmd</pre>\n<script nonce=\"");
    add_escaped(t, nonce);
    text_addf(t, "\">%s</script></body></html>\n", script);
}

void page_print(const struct status *s, const struct rates *series, unsigned count,
                const char *nonce, struct text *out)
{
    add_head(out, s, nonce);
    add_four(out, s, series, count);
    add_disks(out, s);
    text_adds(out, s->upstream_count > 1 ? "<h2>Upstreams</h2>" : "<h2>Upstream</h2>");
    for (unsigned i = 0; i < s->upstream_count; i++)
        add_upstream(out, s, i);
    add_clients(out, s);
    add_foot(out, s, nonce);
}
