'use strict';
const $ = id => document.getElementById(id);
const set = (id, text) => { const e = $(id); if (e && e.textContent !== text) e.textContent = text; };
const bad = (id, is) => { const e = $(id); if (e) e.className = is ? 'bad' : e.dataset.c || ''; };
const unit = (n, step, units) => {
 let i = 0;
 for (; n >= step && i < units.length - 1; i++) n /= step;
 return [n, units[i]];
};
const rate = n => {
 const [v, u] = unit(n, 1000, ['B/s', 'KB/s', 'MB/s', 'GB/s', 'TB/s']);
 return v.toFixed(v >= 100 || u === 'B/s' ? 0 : v < 10 ? 2 : 1) + ' ' + u;
};
const size = n => {
 const [v, u] = unit(n, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']);
 return v.toFixed(u === 'B' ? 0 : v < 10 ? 2 : 1) + ' ' + u;
};
const ms = n => n >= 1000 ? (n / 1000).toFixed(2) + ' s' : n.toFixed(n < 100 ? 1 : 0) + ' ms';
const percent = r => (100 * r).toFixed(1) + ' %';
const count = n => String(n).replace(/\B(?=(\d{3})+$)/g, ' ');
const span = s => {
 const d = s / 86400 | 0, h = (s / 3600 | 0) % 24, m = (s / 60 | 0) % 60, p = x => String(x).padStart(2, '0');
 return d ? d + 'd ' + h + 'h' : h ? h + 'h ' + p(m) + 'm' : m ? m + 'm ' + p(s % 60) + 's' : s + 's';
};
const rows = (id, lines) => {
 const e = $(id);
 if (!e) return;
 e.replaceChildren(...lines.map(line => {
  const tr = document.createElement('tr');
  line.forEach(text => { tr.insertCell().textContent = text; });
  return tr;
 }));
};
const points = [0, 1, 2, 3].map(i => $('c' + i).dataset.v.split(' ').filter(x => x).map(Number));
let notes = Number($('c0').dataset.n), heard = Date.now();
const chart = (n, values) => {
 if (n === notes) return;
 notes = n;
 values.forEach((value, i) => {
  const a = points[i], e = $('c' + i);
  a.push(value);
  if (a.length > 30) a.shift();
  const top = Math.max(...a, 1e-9), last = Math.max(a.length - 1, 1);
  e.setAttribute('points', a.map((v, k) => (240 * k / last).toFixed(1) + ',' + (35 - 34 * v / top).toFixed(1)).join(' '));
 });
};
const show = s => {
 const r = s.last_5m, now = s.last_10s;
 set('state', s.state + ', up ' + span(s.uptime_s));
 bad('state', s.state !== 'ready');
 set('gpu', percent(r.stall_ratio));
 set('disk', percent(r.disk_stall_ratio));
 set('n0', rate(r.sent_bytes_per_s));
 set('n1', rate(r.upstream_bytes_per_s));
 set('n2', percent(r.hit_bytes_ratio));
 set('n3', ms(r.p99_ms));
 chart(now.note, [now.sent_bytes_per_s, now.upstream_bytes_per_s, now.hit_bytes_ratio, now.p99_ms]);
 s.upstreams.forEach((u, i) => {
  set('up' + i, u.up ? 'answering, ' + ms(u.rtt_ms) + (u.throttled ? ', throttled' : '') : 'not answering');
  bad('up' + i, !u.up);
 });
 set('objects', count(s.cache.objects));
 set('pinned', size(s.cache.pinned));
 s.disks.forEach((d, i) => {
  set('du' + i, size(d.used));
  set('df' + i, size(Math.max(0, d.capacity - d.used - d.lost)));
  set('ds' + i, d.state + (d.errors ? ', ' + d.errors + ' errors' : ''));
  bad('ds' + i, d.state !== 'up');
  const e = $('db' + i);
  if (e) e.setAttribute('width', d.capacity ? Math.min(100, 100 * (d.used + d.lost) / d.capacity) : 0);
 });
 rows('clients', s.clients.map(c => [c.host, c.agent, span(c.seconds_ago) + ' ago']));
 set('warnings', s.warnings.join('\n') || 'none');
};
const progress = j => {
 const part = j.bytes.wanted ? j.bytes.done / j.bytes.wanted : j.objects.wanted ? j.objects.done / j.objects.wanted : 0;
 return j.state + (part < 1 && j.state !== 'done' ? ', ' + percent(part) : '') + (j.objects.failed ? ', ' + count(j.objects.failed) + ' failed' : '');
};
const get = async path => (await fetch(path, {cache: 'no-store'})).json();
let turn = 0;
const tick = async () => {
 if (document.hidden) return;
 try {
  show(await get('/v1/status'));
  if ($('top') && turn++ % 5 === 0) {
   const t = await get('/v1/top?by=prefix&limit=8'), j = await get('/v1/jobs');
   rows('top', t.rows.map(p => [p.name, rate(1000 * p.bytes / Math.max(t.over_ms, 1000)), count(p.requests)]));
   rows('jobs', j.jobs.slice(-8).reverse().map(x => [x.prefix || 'everything', x.kind, count(x.objects.done) + ' of ' + count(x.objects.wanted), progress(x)]));
  }
  heard = Date.now();
 } catch (e) {
  set('state', 'no answer for ' + span((Date.now() - heard) / 1000 | 0) + ': these are the numbers of then');
  bad('state', true);
 }
};
setInterval(tick, 2000);
