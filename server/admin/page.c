/* The status page: one HTML document without anything from elsewhere, readable without scripts.
 *
 * Invariants:
 *  1. Every text that is not a literal of this file passes add_escaped().
 *  2. Script and style (page.js, page.css) carry the nonce; the answer's policy forbids all others.
 *  3. The page is made whole by the server; the script only refreshes the same numbers from
 *     /v1/status, and those of page_more from /v1/top and /v1/jobs, where there is a table of them.
 *  4. Nothing is told by a colour or a chart alone: the same stands there in words.
 *
 * Life: a pure function over a text. Failure: a text that is too small says `over`; the caller
 * answers 500. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/admin.h"
#include "units.h"

enum { CHART_WIDTH = 240, CHART_HEIGHT = 36 };

/* The two files as texts; the build runs at the top of the tree. */
__asm__(".pushsection .rodata\n"
        ".global page_css, page_js\n"
        ".hidden page_css, page_js\n"
        "page_css: .incbin \"server/admin/page.css\"\n"
        ".byte 0\n"
        "page_js: .incbin \"server/admin/page.js\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char page_css[], page_js[];

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

/* ` id="state" class="bad"`: what is bad says so in words, too; usual: its class else, or "". */
static void add_id(struct text *t, const char *id, unsigned number, bool bad, const char *usual)
{
    text_addf(t, " id=\"%s", id);
    if (number != UINT32_MAX)
        text_addu(t, number);
    text_adds(t, "\"");
    if (usual[0])
        text_addf(t, " data-c=\"%s\"", usual);
    if (bad || usual[0])
        text_addf(t, " class=\"%s\"", bad ? "bad" : usual);
    text_adds(t, ">");
}

static void add_head(struct text *t, const struct status *s, const char *nonce)
{
    text_adds(t, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>headpond "
                 "on ");
    add_escaped(t, s->name);
    text_adds(t, "</title><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                 "<noscript><meta http-equiv=\"refresh\" content=\"10\"></noscript><style "
                 "nonce=\"");
    add_escaped(t, nonce);
    text_adds(t, "\">");
    text_adds(t, page_css);
    text_adds(t, "</style></head><body>\n<header><h1>headpond " HEADPOND_VERSION " on ");
    add_escaped(t, s->name);
    text_adds(t, "</h1><p role=\"status\"");
    add_id(t, "state", UINT32_MAX, strcmp(s->state, "ready") != 0, "m");
    add_escaped(t, s->state);
    text_adds(t, ", up ");
    units_duration(t, s->uptime_s);
    text_adds(t, "</p></header>\n<main>\n<p class=\"big\">GPUs waited <span id=\"gpu\">");
    units_percent(t, s->last.stall_ratio, 1);
    text_adds(t, "</span></p><p class=\"m\">of their reading time for upstream, and <span "
                 "id=\"disk\">");
    units_percent(t, s->last.disk_ratio, 1);
    text_adds(t, "</span> for disks of this server, in the last 5 minutes</p>\n");
}

/* ---- four numbers ---- */

static double chart_value(const struct rates *r, unsigned chart)
{
    const double value[PAGE_SERIES] = {
        r->sent_bytes_per_s, r->upstream_bytes_per_s, r->hit_bytes_ratio, r->p99_ms,
    };
    return value[chart];
}

static void add_chart(struct text *t, const struct page *p, unsigned chart)
{
    double top = 1e-9;
    unsigned count = p->count;

    for (unsigned i = 0; i < count; i++)
        top = chart_value(&p->series[i], chart) > top ? chart_value(&p->series[i], chart) : top;
    text_addf(t, "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
                 "<polyline id=\"c%u\" data-n=\"%llu\" data-v=\"",
              CHART_WIDTH, CHART_HEIGHT, chart, (unsigned long long)p->s->note);
    for (unsigned i = 0; i < count; i++)
        text_addf(t, "%s%.4g", i ? " " : "", chart_value(&p->series[i], chart));
    text_adds(t, "\" points=\"");
    unsigned steps = count > 1 ? count - 1 : 1;
    for (unsigned i = 0; i < count; i++)
        text_addf(t, "%s%.1f,%.1f", i ? " " : "", (double)CHART_WIDTH * i / steps,
                  CHART_HEIGHT - 1 - (CHART_HEIGHT - 2) * chart_value(&p->series[i], chart) / top);
    text_adds(t, "\"/></svg></div>\n");
}

static void add_four(struct text *t, const struct page *p)
{
    static const char *const labels[PAGE_SERIES] = {"to clients", "from upstream",
                                                    "of bytes were hits",
                                                    "99th percentile of a request"};
    text_adds(t, "<dl class=\"four\">");
    for (unsigned i = 0; i < PAGE_SERIES; i++) {
        double n = chart_value(&p->s->last, i);
        text_addf(t, "<div><dt>%s</dt><dd id=\"n%u\">", labels[i], i);
        if (i < 2)
            units_rate(t, n, n);
        else if (i == 2)
            units_percent(t, n, 1);
        else
            units_ms(t, n);
        text_adds(t, "</dd>");
        add_chart(t, p, i);
    }
    text_adds(t, "</dl>\n");
}

/* ---- tables ---- */

/* A table that scrolls by itself on a narrow screen, as far as its first row; columns end with
 * NULL. The rows stand in the body, whose id the script knows. */
static void open_table(struct text *t, const char *name, const char *id,
                       const char *const *columns)
{
    text_addf(t, "<div class=\"wide\" role=\"region\" aria-label=\"%s\" tabindex=\"0\"><table>"
                 "<thead><tr>", name);
    for (; *columns; columns++)
        text_addf(t, "<th scope=\"col\">%s</th>", *columns);
    text_addf(t, "</tr></thead><tbody id=\"%s\">", id);
}

static void close_table(struct text *t)
{
    text_adds(t, "</tbody></table></div>\n");
}

static void add_disk(struct text *t, const struct cache_disk_status *d, unsigned i)
{
    uint64_t taken = d->used_bytes + d->lost_bytes;
    double part = d->capacity_bytes ? (double)taken / (double)d->capacity_bytes : 0;
    uint64_t spare = d->capacity_bytes - min_u64(taken, d->capacity_bytes);

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
    text_adds(t, "</td><td");
    add_id(t, "ds", i, d->state != DISK_UP, "");
    text_adds(t, disk_state_name(d->state));
    if (d->errors)
        text_addf(t, ", %llu errors", (unsigned long long)d->errors);
    text_adds(t, "</td></tr>");
}

static void add_disks(struct text *t, const struct status *s)
{
    static const char *const columns[] = {"directory", "", "used", "free", "state", NULL};

    text_adds(t, "<h2>Cache: <span id=\"objects\">");
    units_count(t, s->cache.objects);
    text_adds(t, "</span> objects, <span id=\"pinned\">");
    units_bytes(t, s->pinned_bytes);
    text_adds(t, "</span> pinned</h2>");
    open_table(t, "Cache directories", "disks", columns);
    for (unsigned i = 0; i < s->cache.disk_count && i < ARRAY_COUNT(s->cache.disk); i++)
        add_disk(t, &s->cache.disk[i], i);
    close_table(t);
}

static void add_top(struct text *t, const struct page_more *m)
{
    static const char *const columns[] = {"prefix", "sent", "requests", NULL};

    text_adds(t, "<h2>Read most in the last minutes</h2>");
    open_table(t, "Prefixes", "top", columns);
    for (unsigned i = 0; i < m->top_count; i++) {
        double per_s = 1000 * (double)m->top[i].bytes / (double)max_u64(m->over_ms, 1000);
        text_adds(t, "<tr><td>");
        add_escaped(t, m->top[i].name);
        text_adds(t, "</td><td>");
        units_rate(t, per_s, per_s);
        text_adds(t, "</td><td>");
        units_count(t, m->top[i].requests);
        text_adds(t, "</td></tr>");
    }
    close_table(t);
}

static void add_job(struct text *t, const struct page_job *j)
{
    double part = j->bytes_wanted     ? (double)j->bytes_done / (double)j->bytes_wanted
                  : j->objects_wanted ? (double)j->objects_done / (double)j->objects_wanted
                                      : 0;
    text_adds(t, "<tr><td>");
    add_escaped(t, j->prefix[0] ? j->prefix : "everything");
    text_addf(t, "</td><td>%s</td><td>", j->kind);
    units_count(t, j->objects_done);
    text_adds(t, " of ");
    units_count(t, j->objects_wanted);
    text_addf(t, "</td><td>%s", j->state);
    if (part < 1 && strcmp(j->state, "done") != 0) {
        text_adds(t, ", ");
        units_percent(t, part, 1);
    }
    if (j->objects_failed) {
        text_adds(t, ", ");
        units_count(t, j->objects_failed);
        text_adds(t, " failed");
    }
    text_adds(t, "</td></tr>");
}

static void add_jobs(struct text *t, const struct page_more *m)
{
    static const char *const columns[] = {"prefix", "job", "objects", "state", NULL};

    text_adds(t, "<h2>Jobs</h2>");
    open_table(t, "Jobs", "jobs", columns);
    for (unsigned i = 0; i < m->job_count; i++)
        add_job(t, &m->job[i]);
    close_table(t);
}

static void add_upstream(struct text *t, const struct status *s, unsigned i)
{
    const struct origin_status *u = &s->upstream[i];

    text_adds(t, "<p>");
    if (s->upstream_count > 1) {
        add_escaped(t, u->name);
        text_adds(t, ": ");
    }
    text_adds(t, "<code>");
    add_escaped(t, u->endpoint);
    text_adds(t, "</code> <span");
    add_id(t, "up", i, !u->up, "");
    if (u->up) {
        text_adds(t, "answering, ");
        units_ms(t, u->rtt_ms);
        text_adds(t, u->throttled ? ", throttled" : "");
    } else {
        text_adds(t, "not answering");
    }
    text_adds(t, "</span></p>\n");
}

static void add_clients(struct text *t, const struct status *s)
{
    static const char *const columns[] = {"address", "program", "last seen", NULL};

    text_adds(t, "<h2>Clients of the last 5 minutes</h2>");
    open_table(t, "Clients", "clients", columns);
    for (unsigned i = 0; i < s->client_count; i++) {
        text_adds(t, "<tr><td>");
        add_escaped(t, s->client[i].host);
        text_adds(t, "</td><td>");
        add_escaped(t, s->client[i].agent);
        text_adds(t, "</td><td>");
        units_duration(t, s->now_wall_s - min_u64(s->client[i].last_wall_s, s->now_wall_s));
        text_adds(t, " ago</td></tr>");
    }
    close_table(t);
}

static void add_warnings(struct text *t, const struct status *s)
{
    text_adds(t, "<h2>Warnings</h2><pre id=\"warnings\">");
    for (unsigned i = 0; i < s->warning_count; i++) {
        text_adds(t, i ? "\n" : "");
        add_escaped(t, s->warning[i]);
    }
    text_adds(t, s->warning_count ? "</pre>\n" : "none</pre>\n");
}

static void add_foot(struct text *t, const struct page *p)
{
    const char *url = p->s->s3_url;

    text_adds(t, "</main>\n<footer><h2>Point a client here</h2><pre>export AWS_ENDPOINT_URL_S3=");
    add_escaped(t, url);
    text_adds(t, " AWS_ENDPOINT_URL=");
    add_escaped(t, url);
    text_adds(t, " S3_ENDPOINT_URL=");
    add_escaped(t, url);
    text_adds(t, "\naws --endpoint-url ");
    add_escaped(t, url);
    text_adds(t, " s3 ls        # older tools, and s5cmd</pre></footer>\n<script nonce=\"");
    add_escaped(t, p->nonce);
    text_adds(t, "\">");
    text_adds(t, page_js);
    text_adds(t, "</script></body></html>\n");
}

void page_print(const struct page *p, struct text *out)
{
    const struct status *s = p->s;

    add_head(out, s, p->nonce);
    add_four(out, p);
    add_disks(out, s);
    if (p->more) {
        add_top(out, p->more);
        add_jobs(out, p->more);
    }
    text_adds(out, s->upstream_count > 1 ? "<h2>Upstreams</h2>" : "<h2>Upstream</h2>");
    for (unsigned i = 0; i < s->upstream_count; i++)
        add_upstream(out, s, i);
    add_warnings(out, s);
    add_clients(out, s);
    add_foot(out, p);
}
