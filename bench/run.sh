#!/bin/bash
# `make bench`: headpondd beside nginx, Varnish, Traffic Server and HAProxy on one machine, taking turns inside each round.
# Prints a table and writes bench/results/last.tsv; rows worth keeping as evidence are copied to a named file there and
# committed. The servers stand in bench/lib/servers.sh, the cells in bench/lib/cells.sh, one call in bench/lib/measure.sh.
#
#   bench/run.sh [ROUNDS=5] [QUICK=1] [CELLS="4k_c64 ..."] [SERVERS="headpond nginxna ..."] [BENCH_DIR=/var/tmp/...]
#                [PROFILE=1]      perf's hottest functions of each cell and server into bench/results/*.perf
#
# Method: a network namespace of its own, loopback MTU 1500, cubic for all by route attribute; servers on core 0, client
# and origins on core 1, one worker each. Hit cells: everything warm, bytes compared once, the origin must stay silent.
# Cold cells: a new process with an empty cache each time, after one small request and once it rests, on memory that was in
# use a moment ago (else a virtual machine's first touch of it is most of what is measured). Idle connections: what the server's resident
# memory grows by, half a second after each of them was answered once. CPU is the process clock of the server
# with all its processes and threads, read around the measured time (cold cells: and half a second behind it). Ratio: to the
# best cache of the cell in this run beside headpond (static and direct are none), above 1 = better. Needs root (for the
# namespace), two cores, the peers' packages; by estimate 22 GiB of memory and 30 of disk with all peers, 6 and 10 with one of them.
set -eu
for setting in "$@"; do
    case $setting in
        ROUNDS=*|QUICK=*|CELLS=*|SERVERS=*|BENCH_DIR=*|PROFILE=*) export "${setting?}" ;;
        *) echo "bench: unknown setting \"$setting\"" >&2; exit 2 ;;
    esac
done
export AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=bench      # of headpondd to its store, and of who asks it signed
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
QUICK=${QUICK:-0}
PROFILE=${PROFILE:-0}
ROUNDS=${ROUNDS:-5}
SLOW_ROUNDS=$((ROUNDS < 3 ? ROUNDS : 3))         # far cells take 10 s each and repeat to 1 %
SERVERS=${SERVERS:-headpond nginxna nginx nginxs varnish ats atss haproxy static direct}
CELLS=${CELLS:-}
dir=${BENCH_DIR:-/var/tmp/headpond-bench}
load=$top/build/release/bench/load
store=$top/build/release/bench/store
touch=$top/build/release/bench/touch
headpondd=${HEADPONDD:-$top/build/release/headpondd}
warm_s=0.2 measure_s=1
[ "$QUICK" = 0 ] || { warm_s=0.1; measure_s=0.3; }

die() { echo "bench: $*" >&2; exit 1; }
has() { case " $1 " in *" $2 "*) return 0 ;; *) return 1 ;; esac; }
. "$here/lib/servers.sh"
. "$here/lib/measure.sh"
. "$here/lib/cells.sh"

# ---- where we stand ----
if [ -z "${BENCH_INSIDE:-}" ]; then
    [ "$(id -u)" -eq 0 ] || die "needs root: it makes a network namespace with a loopback of its own (sudo make bench)"
    [ "$(nproc)" -ge 2 ] || die "needs two cores: one for the server, one for the client and the origin"
    for tool in ip unshare taskset setpriv curl openssl awk; do
        command -v "$tool" >/dev/null || die "needs $tool (make test-deps installs it)"
    done
    for file in "$load" "$store" "$touch"; do
        [ -x "$file" ] || die "$file is not built (make bench builds it)"
    done
    need_servers
    for cell in $CELLS; do
        units | grep -q "^$cell " || die "unknown cell \"$cell\"; there are: $(units | cut -d' ' -f1 | tr '\n' ' ')"
    done
    unshare -n true 2>/dev/null || die "cannot make a network namespace here (unshare -n is refused)"
    BENCH_INSIDE=1 exec unshare -n -- "$0" "$@"
fi
ip link set lo mtu 1500 up || die "cannot set up loopback in the namespace"
ip route change local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 congctl cubic 2>/dev/null ||
    die "cannot set cubic on the loopback route (ip route ... congctl is refused)"
ulimit -n 20000 2>/dev/null || die "needs 20000 descriptors (ulimit -n)"
ulimit -l unlimited 2>/dev/null || :

# ---- the table ----
report() {
    local machine commit
    machine="$(nproc)x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), Linux $(uname -r)"
    commit=$(git -C "$top" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    [ -z "$(git -C "$top" status --porcelain -uno 2>/dev/null)" ] || commit=$commit+
    [ -s "$dir/rows" ] || die "none of these servers takes part in these cells${lost:+, or answers rightly:$lost}"
    mkdir -p "$here/results"
    units >"$dir/units"
    echo "$machine, $commit, $ROUNDS rounds; median [min-max]; read-ahead of the disk $found_ahead KiB"
    echo "ratio: to the best cache of the cell beside headpond, named behind it; above 1 = better"
    awk -v date="$(date -u +%Y-%m-%dT%H:%MZ)" -v commit="$commit" -v machine="$machine" \
        -v tsv="$here/results/last.tsv" -f "$here/table.awk" "$dir/units" "$dir/rows"
}

reported=
rescue() {                                       # what was measured before something ended the run: it may be an hour's work
    [ -z "$reported" ] && [ -s "$dir/rows" ] || return 0
    echo "bench: cut short; the rounds until then:"
    report
}
trap 'rescue || :; finish' EXIT      # whatever becomes of the table, the servers end
trap 'exit 130' INT TERM
rm -rf "$dir"
mkdir -p "$dir/fast" "$dir/far"
SECONDS=0
make_objects
run_on fast 1 "$dir/fast/log" "$store" -d "$dir/objects" -p "$(port_of fast)"
run_on far 1 "$dir/far/log" "$store" -d "$dir/objects" -p "$(port_of far)" -l 20 -r 100000000
await fast
await far
echo "objects made, ${SECONDS} s" >&2
run_hits hits
run_hits pairs
run_hits tls
run_cold
run_hits disk
[ -z "$(servers_of "${ahead_cells[@]}")" ] || by_linux_ahead run_hits ahead
reported=yes
report
[ -z "$lost" ] || die "rounds without a server that answered wrongly (CELL:SERVER):$lost"
