# When each alert of conf/alerts.yml must fire and when not: series in, alerts out, played by `promtool test rules`.
#
# A case: the alert, the minute that is looked at, the labels of those that must fire then (None: silence), the series. A series is
# written without job and instance, its values as promtool has them ("0+60x30": 0, then 60 more each minute, 30 times).
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re

import yaml

GET = "headpond_get_seconds_total"
UP, MISSED, KEPT = "headpond_stall_seconds_total", 'headpond_sent_bytes_total{source="upstream"}', \
    'headpond_sent_bytes_total{source="nvme"}'
GONE, AGAIN, DENIED = 'headpond_cache_evicted_bytes_total{cause="space"}', \
    'headpond_upstream_retries_total{upstream="s3",reason="slowdown"}', \
    'headpond_upstream_retries_denied_total{upstream="s3",reason="slowdown"}'
DISK = 'disk="/nvme0"'
HERE = {}

CASES = [
    ("HeadpondDown", 5, [HERE], {"up": "1 0x10"}),
    ("HeadpondDown", 5, None, {"up": "1x10"}),
    ("HeadpondDown", 5, None, {"up": "1 1 1 1 1 0 0"}),                         # for less than a minute
    ("HeadpondNotReady", 5, [HERE], {"headpond_up_ready": "1 0x10"}),
    ("HeadpondNotReady", 5, None, {"headpond_up_ready": "1 1 1 1 0 0 0"}),       # a restart
    # in six of sixty seconds, with one request running all the time: 10 % is what is allowed
    ("HeadpondGpusWaited", 40, [HERE], {UP + '{cause="miss"}': "0+5x60", UP + '{cause="throttled"}': "0+3x60", GET: "0+60x60"}),
    ("HeadpondGpusWaited", 40, None, {UP + '{cause="miss"}': "0+5x60", GET: "0+60x60"}),
    ("HeadpondGpusWaited", 40, None, {UP + '{cause="disk"}': "0+50x60", GET: "0+60x60"}),  # a disk is local
    ("HeadpondGpusWaited", 40, None, {UP + '{cause="miss"}': "0+2x60", GET: "0+3x60"}),    # hardly anybody reads
    ("HeadpondGpusWaited", 8, None, {UP + '{cause="miss"}': "0+50x60", GET: "0+60x60"}),   # for less than ten minutes
    ("HeadpondDisksSlow", 40, [HERE], {UP + '{cause="disk"}': "0+80x60", GET: "0+120x60"}),
    ("HeadpondDisksSlow", 40, None, {UP + '{cause="disk"}': "0+50x60", UP + '{cause="miss"}': "0+60x60", GET: "0+120x60"}),
    ("HeadpondHitRatioLow", 120, [HERE], {MISSED: "0+600000000x150", KEPT: "0+400000000x150"}),
    ("HeadpondHitRatioLow", 120, None, {MISSED: "0+400000000x150", KEPT: "0+600000000x150"}),
    ("HeadpondHitRatioLow", 120, None, {MISSED: "0+6000000x150", KEPT: "0x150"}),          # 0.1 MB/s
    ("HeadpondHitRatioLow", 40, None, {MISSED: "0+600000000x150", KEPT: "0+400000000x150"}),  # a first epoch
    ("HeadpondChurn", 90, [HERE], {GONE: "0+600000000x100", KEPT: "0+1000000000x100"}),
    ("HeadpondChurn", 90, None, {GONE: "0+400000000x100", KEPT: "0+1000000000x100"}),
    ("HeadpondChurn", 90, None, {'headpond_cache_evicted_bytes_total{cause="request"}': "0+600000000x100",
                                 KEPT: "0+1000000000x100"}),                     # somebody wished it
    ("HeadpondUpstreamDown", 5, [{"upstream": "s3"}], {'headpond_upstream_up{upstream="s3"}': "1 0x10",
                                                       'headpond_upstream_up{upstream="minio"}': "1x10"}),
    ("HeadpondUpstreamDown", 5, None, {'headpond_upstream_up{upstream="s3"}': "1x10"}),
    ("HeadpondThrottled", 40, [{"upstream": "s3"}], {AGAIN: "0+10x60", DENIED: "0+5x60"}),
    ("HeadpondThrottled", 40, None, {AGAIN: "0+5x60", DENIED: "0+5x60"}),
    ("HeadpondThrottled", 40, None, {'headpond_upstream_retries_total{upstream="s3",reason="reset"}': "0+100x60", DENIED: "0x60"}),
    ("HeadpondDiskFenced", 5, [{"disk": "/nvme0"}], {f"headpond_disk_up{{{DISK}}}": "1 0x10", 'headpond_disk_up{disk="/nvme1"}': "1x10"}),
    ("HeadpondDiskFenced", 5, None, {f"headpond_disk_up{{{DISK}}}": "1x10"}),
    ("HeadpondDiskErrors", 10, [{"disk": "/nvme0"}], {f'headpond_disk_errors_total{{{DISK},op="read"}}': "0 0 0 0 0 1x10",
                                                      f'headpond_disk_errors_total{{{DISK},op="write"}}': "0x15"}),
    ("HeadpondDiskErrors", 40, None, {f'headpond_disk_errors_total{{{DISK},op="read"}}': "0 0 0 0 0 1x60"}),  # long ago
    ("HeadpondChecksumFailures", 10, [{"disk": "/nvme0"}], {f"headpond_checksum_failures_total{{{DISK}}}": "0 0 0 0 0 1x10"}),
    ("HeadpondChecksumFailures", 10, None, {f"headpond_checksum_failures_total{{{DISK}}}": "3x15"}),          # of before
    ("HeadpondIndexErrors", 10, [{"disk": "/nvme0"}], {f"headpond_index_errors_total{{{DISK}}}": "0 0 0 0 0 1x10"}),
    ("HeadpondIndexErrors", 10, [{"disk": "/nvme0"}], {f"headpond_index_errors_total{{{DISK}}}": "0x15",
                                                       f"headpond_index_moved_total{{{DISK}}}": "0 0 0 0 0 1x10"}),
    ("HeadpondIndexErrors", 10, None, {f"headpond_index_errors_total{{{DISK}}}": "0x15", f"headpond_index_moved_total{{{DISK}}}": "1x15"}),
    ("HeadpondNotKept", 40, [HERE], {'headpond_cache_refused_bytes_total{reason="full"}': "0+50000000x60",
                                     'headpond_cache_refused_bytes_total{reason="pinned"}': "0+50000000x60"}),
    ("HeadpondNotKept", 40, None, {'headpond_cache_refused_bytes_total{reason="policy"}': "0+500000000x60"}),  # as it should be
    ("HeadpondNotKept", 40, None, {'headpond_cache_refused_bytes_total{reason="full"}': "0+5000000x60"}),
    ("HeadpondDisksBehind", 40, [HERE], {'headpond_cache_refused_bytes_total{reason="behind"}': "0+500000000x60"}),
    ("HeadpondDisksBehind", 40, None, {'headpond_cache_refused_bytes_total{reason="behind"}': "0+5000000x60"}),
    ("HeadpondCredentialsExpire", 60, [HERE], {"headpond_credentials_expire_time_seconds": "3700x70"}),       # time() is 3600
    ("HeadpondCredentialsExpire", 60, None, {"headpond_credentials_expire_time_seconds": "3900x70"}),
    ("HeadpondCredentialsExpire", 60, None, {"headpond_credentials_expire_time_seconds": "0x70"}),            # none are renewed
    ("HeadpondDescriptorsExhausted", 10, [HERE], {"headpond_fd_exhausted_total": "0 0 0 0 0 1x10"}),
    ("HeadpondDescriptorsExhausted", 10, None, {"headpond_fd_exhausted_total": "0x15"}),
    ("HeadpondConfigRejected", 5, [HERE], {"headpond_config_reload_success": "1 1 1 0x10"}),
    ("HeadpondConfigRejected", 5, None, {"headpond_config_reload_success": "1 0 1x10"}),
]
WHERE = {"job": "headpond", "instance": "dgx-03:9001"}


def read(path):
    with open(path, encoding="utf-8") as f:
        return {rule["alert"]: rule for group in yaml.safe_load(f)["groups"] for rule in group["rules"]}


def series(name):
    labels = re.search(r"\{(.*)\}$", name)
    more = ",".join(f'{k}="{v}"' for k, v in WHERE.items())
    return f"{name.split('{')[0]}{{{labels.group(1) + ',' if labels else ''}{more}}}"


def expected(rule, labels):
    """What fires: the alert's texts with the labels put in."""
    labels = {**WHERE, **labels}
    texts = {key: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda m: labels[m.group(1)], text)
             for key, text in rule["annotations"].items()}
    return {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": texts}


def write(rules_path, path):
    """Writes the cases as promtool wants them, which takes JSON for YAML. Returns what is wrong with the cases themselves."""
    rules = read(rules_path)
    tests = [{"interval": "1m", "name": alert,
              "input_series": [{"series": series(name), "values": values} for name, values in given.items()],
              "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": alert,
                                   "exp_alerts": [expected(rules[alert], labels) for labels in fire or ()]}]}
             for alert, minute, fire, given in CASES if alert in rules]
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"rule_files": [os.path.abspath(rules_path)], "evaluation_interval": "1m", "tests": tests}, f)
    wrong = [f"{alert}: no such alert" for alert, *_ in CASES if alert not in rules]
    for alert in rules:
        kinds = {fire is None for name, _, fire, _ in CASES if name == alert}
        wrong += [f"{alert}: no case in which it {word}" for kind, word in ((False, "fires"), (True, "is silent")) if kind not in kinds]
    return wrong
