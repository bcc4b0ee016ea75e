# A private Ceph RADOS gateway: one monitor, one OSD that keeps its objects in memory, one radosgw;
# no manager, no authentication inside, everything on loopback and below one directory.
#
# Life: start() until the gateway answers and its user exists; stop() ends the three in reverse
# order.
# Failure: procs.Failure with the tail of the log of whoever is missing.
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import urllib.error
import urllib.request
import uuid

from procs import Failure, Process, free_port, run, wait_until

CONFIG = """[global]
fsid = {fsid}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_host = [v1:127.0.0.1:{mon_port}/0]
ms_bind_msgr2 = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
run_dir = {dir}/run
admin_socket = {dir}/run/$name.asok
pid_file = {dir}/run/$name.pid
log_file = {dir}/log/$name.log
log_to_stderr = false
mon_cluster_log_file = {dir}/log/cluster.log
mon_data = {dir}/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 0
mon_allow_pool_size_one = true
osd_data = {dir}/osd
osd_objectstore = memstore
memstore_device_bytes = {bytes}
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0

[client.rgw]
rgw_data = {dir}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw_gc_obj_min_wait = 1
rgw_gc_processor_period = 1
rgw_gc_processor_max_time = 1
rgw_thread_pool_size = 64
debug_rgw = 0
"""
NEEDED = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
START_SECONDS = 90
OSD_STARTS = 5


class User:
    def __init__(self, name, access, secret):
        self.name, self.access, self.secret = name, access, secret


class Ceph:
    def __init__(self, folder, memory_bytes=8 << 30):
        self.dir, self.memory_bytes = folder, memory_bytes
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.users = {}
        self.parts = []

    def start(self):
        for name in ("", "mon", "osd", "rgw", "run", "log"):
            os.makedirs(os.path.join(self.dir, name), exist_ok=True)
        self.fsid = str(uuid.uuid4())
        self.config = os.path.join(self.dir, "ceph.conf")
        mon_port = free_port()
        with open(self.config, "w") as f:
            f.write(CONFIG.format(fsid=self.fsid, mon_port=mon_port, dir=self.dir, port=self.port,
                                  bytes=self.memory_bytes))
        self._start_monitor(mon_port)
        self._start_osd()
        gateway = self._begin("radosgw", "-n", "client.rgw", "-f")
        gateway.wait_ready(self._answers, START_SECONDS)
        self.add_user("main", "RGWMAINACCESSKEY", "rgw-main-secret/with+signs=0123456789")
        return self

    def stop(self):
        for part in reversed(self.parts):
            part.stop(10)
        self.parts = []

    def add_user(self, name, access, secret):
        done = run(["radosgw-admin", "-c", self.config, "-n", "client.rgw", "user", "create",
                    "--uid", name, "--display-name", name, "--access-key", access,
                    "--secret", secret], timeout=START_SECONDS)
        if json.loads(done.stdout)["keys"][0]["access_key"] != access:
            raise Failure(f"radosgw-admin did not make user {name}")
        self.users[name] = User(name, access, secret)
        return self.users[name]

    # ---- the parts ----

    def _begin(self, program, *arguments):
        log = os.path.join(self.dir, "log", program + ".out")
        part = Process(program, [program, "-c", self.config, *arguments], log).start()
        self.parts.append(part)
        return part

    def _ceph(self, *arguments):
        return run(["ceph", "-c", self.config, "--connect-timeout", "5", *arguments], timeout=30,
                   check=False)

    def _start_monitor(self, port):
        monmap = os.path.join(self.dir, "monmap")
        run(["monmaptool", "--create", "--fsid", self.fsid, "--addv", "a",
             f"[v1:127.0.0.1:{port}]", monmap])
        run(["ceph-mon", "-c", self.config, "--mkfs", "-i", "a", "--monmap", monmap])
        monitor = self._begin("ceph-mon", "-i", "a", "-f")
        monitor.wait_ready(lambda: self._ceph("mon", "stat").returncode == 0, START_SECONDS)

    def _start_osd(self):
        number = str(uuid.uuid4())
        # A monitor that answered once may still refuse the next connection; asked again it gives the same number for the same uuid.
        wait_until("osd.0 from the monitor", lambda: self._ceph("osd", "new", number).stdout.strip() == b"0", START_SECONDS)
        run(["ceph-osd", "-c", self.config, "-i", "0", "--mkfs", "--osd-uuid", number])
        self._ceph("osd", "crush", "add", "osd.0", "1.0", "root=default", "host=localhost")
        for left in reversed(range(OSD_STARTS)):
            osd = self._begin("ceph-osd", "-i", "0", "-f")
            try:
                return osd.wait_ready(self._osd_is_up, START_SECONDS)
            except Failure as e:       # a race inside: it may ask before it knows the monitor's map
                if osd.alive() or "wrong fsid" not in str(e) or not left:
                    raise
                self.parts.remove(osd)

    def _osd_is_up(self):
        done = self._ceph("osd", "stat", "-f", "json")
        return done.returncode == 0 and json.loads(done.stdout).get("num_up_osds") == 1

    def _answers(self):
        try:
            with urllib.request.urlopen(self.endpoint, timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


def missing():
    """Programs of the packages radosgw, ceph-mon, ceph-osd and ceph-common that are not here."""
    paths = os.environ.get("PATH", "").split(":")
    return [p for p in NEEDED if not any(os.access(os.path.join(d, p), os.X_OK) for d in paths)]


def main():
    """By hand: python3 ceph.py DIR serves until a line, or the end, of standard input."""
    ceph = Ceph(os.path.abspath(sys.argv[1]))
    try:
        user = ceph.start().users["main"]
        print(f"{ceph.endpoint} {user.access} {user.secret}", flush=True)
        sys.stdin.readline()
    finally:
        ceph.stop()


if __name__ == "__main__":
    main()
