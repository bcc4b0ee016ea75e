# Scrapes under load: scrape.py S3_PORT ADMIN_PORT PATH...   exits 1 and says why if a page was not whole or a counter went back.
#
# Eight clients read the paths until fifty pages of metrics were read; on each page counters are at least what they were on the page
# before, a histogram's buckets rise to its count, and all answers were 200. SPDX-License-Identifier: Apache-2.0
import http.client
import re
import subprocess
import sys
import threading

CLIENTS, PAGES, SERIES_MAX = 8, 50, 2000
s3, admin, paths = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
over, wrong = threading.Event(), []


def client(n):
    c, i = http.client.HTTPConnection("127.0.0.1", s3, timeout=20), n
    while not over.is_set():
        c.request("GET", paths[i % len(paths)])
        r = c.getresponse()
        r.read()
        i += 1
        if r.status != 200:
            wrong.append(f"{paths[i % len(paths)]}: {r.status}")


def page():
    c = http.client.HTTPConnection("127.0.0.1", admin, timeout=20)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    series = {k: float(v) for k, v in re.findall(r"^([^#\s].*) (\S+)$", text, re.M)}
    return text, kinds, series


def judge(kinds, series, before):
    for name, value in series.items():
        family = re.sub(r"\{.*", "", name)
        histogram = kinds.get(re.sub(r"_(bucket|sum|count)$", "", family)) == "histogram"
        if (histogram or kinds.get(family) == "counter") and value < before.get(name, 0):
            wrong.append(f"{name}: {before[name]}, then {value}")
        if histogram and family.endswith("_count"):
            last = re.sub(r"\{$", "{", name.replace("_count", "_bucket", 1))
            last = last[:-1] + ',le="+Inf"}' if last.endswith("}") else last + '{le="+Inf"}'
            if series.get(last) != value:
                wrong.append(f"{name}: {value}, its last bucket {series.get(last)}")


threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
for t in threads:
    t.start()
before = {}
for _ in range(PAGES):
    text, kinds, series = page()
    judge(kinds, series, before)
    before = series
over.set()
for t in threads:
    t.join()
lint = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True)
if lint.returncode or lint.stdout or lint.stderr:
    wrong.append((lint.stdout + lint.stderr).decode())
if len(before) >= SERIES_MAX or len(before) < 100:
    wrong.append(f"{len(before)} series")
hits = before.get('headpond_requests_total{op="get",result="hit",code="2xx"}', 0)
if hits < 20:
    wrong.append(f"{hits} hits: that was no load")
print("\n".join(wrong[:10]) or f"{len(before)} series, {hits:.0f} hits")
sys.exit(1 if wrong else 0)
