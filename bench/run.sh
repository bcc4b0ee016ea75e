#!/bin/bash
# `make bench`: headpondd beside nginx on one machine, taking turns inside each round. Prints a table and writes
# bench/results/last.tsv; rows worth keeping as evidence are copied to a named file there and committed.
#
#   bench/run.sh [ROUNDS=5] [QUICK=1] [CELLS="4k_c64 ..."] [SERVERS="headpond nginxna ..."] [BENCH_DIR=/var/tmp/...]
#                [PROFILE=1]      perf's hottest functions of each cell and server into bench/results/*.perf
#
# Method: a network namespace of its own, loopback MTU 1500, cubic for all by route attribute; servers on core 0, client
# and origins on core 1, one worker each. Hit cells: everything warm, bytes compared once, the origin must stay silent.
# Cold cells: a new process with an empty cache each time, after one small request, on memory that was in use a moment
# ago (else a virtual machine's first touch of it is most of what is measured). CPU is the process clock of the server
# with all its threads, read around the measured time (cold cells: and half a second behind it). Ratio: to the best nginx cache of the cell in this run,
# above 1 = better. Needs root (for the namespace), two cores, nginx, 12 GiB of memory and of disk.
set -eu
for setting in "$@"; do
    case $setting in
        ROUNDS=*|QUICK=*|CELLS=*|SERVERS=*|BENCH_DIR=*|PROFILE=*) export "${setting?}" ;;
        *) echo "bench: unknown setting \"$setting\"" >&2; exit 2 ;;
    esac
done
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
QUICK=${QUICK:-0}
PROFILE=${PROFILE:-0}
ROUNDS=${ROUNDS:-5}
SLOW_ROUNDS=$((ROUNDS < 3 ? ROUNDS : 3))         # far cells take 10 s each and repeat to 1 %
SERVERS=${SERVERS:-headpond nginxna nginx nginxs static direct}
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

# ---- where we stand ----
if [ -z "${BENCH_INSIDE:-}" ]; then
    [ "$(id -u)" -eq 0 ] || die "needs root: it makes a network namespace with a loopback of its own (sudo make bench)"
    [ "$(nproc)" -ge 2 ] || die "needs two cores: one for the server, one for the client and the origin"
    for tool in nginx ip unshare taskset setpriv curl awk; do
        command -v "$tool" >/dev/null || die "needs $tool (make test-deps installs it)"
    done
    for file in "$load" "$store" "$touch"; do
        [ -x "$file" ] || die "$file is not built (make bench builds it)"
    done
    if has "$SERVERS" headpond && [ ! -x "$headpondd" ]; then
        die "$headpondd is not built (make), or leave it out: SERVERS=\"nginxna nginx nginxs\""
    fi
    unshare -n true 2>/dev/null || die "cannot make a network namespace here (unshare -n is refused)"
    BENCH_INSIDE=1 exec unshare -n -- "$0" "$@"
fi
ip link set lo mtu 1500 up || die "cannot set up loopback in the namespace"
ip route change local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 congctl cubic 2>/dev/null ||
    die "cannot set cubic on the loopback route (ip route ... congctl is refused)"
ulimit -n 20000 2>/dev/null || die "needs 20000 descriptors (ulimit -n)"
ulimit -l unlimited 2>/dev/null || :

# ---- processes ----
declare -A pid_of=()
finish() {
    trap - EXIT INT TERM
    exec 2>/dev/null                             # the shell would tell of each process that is killed here
    for name in "${!pid_of[@]}"; do kill -KILL $(family "${pid_of[$name]}") || :; done
    wait || :
    rm -rf "$dir"
}
family() { echo "$1" $(pgrep -P "$1" 2>/dev/null || :); }
run_on() {                                       # NAME CORE LOG COMMAND...: in the background, ends with this shell
    local name=$1 core=$2 log=$3
    shift 3
    setpriv --pdeathsig KILL taskset -c "$core" "$@" </dev/null >>"$log" 2>&1 &
    pid_of[$name]=$!
}
end() {                                          # NAME
    local pids; pids=$(family "${pid_of[$1]}")
    kill -KILL $pids 2>/dev/null || :
    wait "${pid_of[$1]}" 2>/dev/null || :
    unset "pid_of[$1]"
}
port_of() {
    case $1 in
        nginxna) echo 8001 ;; nginx) echo 8002 ;; nginxs) echo 8003 ;; static) echo 8004 ;; headpond) echo 8000 ;;
        fast) echo 9100 ;; far) echo 9101 ;;
    esac
}
await() {                                        # NAME PORT: until it serves a small object
    local tries=0
    until curl -sf -o /dev/null --max-time 5 "http://127.0.0.1:$2/bench/small/0000@4K"; do
        tries=$((tries + 1))
        kill -0 "${pid_of[$1]}" 2>/dev/null || { tail -5 "$dir/$1"/*log >&2; die "$1 ended at its start"; }
        [ $tries -lt 300 ] || { tail -5 "$dir/$1"/*log >&2; die "$1 does not answer"; }
        read -rt 0.03 <> <(:) || :
    done
}
start_headpond() {                               # ORIGIN_PORT
    AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=bench AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true \
        HEADPOND_CONFIG=/dev/null run_on headpond 0 "$dir/headpond/log" "$headpondd" --allow-root \
        --upstream "http://127.0.0.1:$1" --cache "$dir/headpond/cache" --size 4GiB --listen 127.0.0.1:8000 \
        --set server.workers=1 --set cache.memory=4GiB --set cache.ttl=1d --set cache.min_free=256MiB \
        --set admin.listen="unix:$dir/headpond/admin.sock"
}
start_nginx() {                                  # NAME ORIGIN_PORT
    cp "$here"/peers/*.conf "$dir/$1/"
    printf 'upstream origin { server 127.0.0.1:%s; keepalive 128; keepalive_requests 1000000; }\n' "$2" >"$dir/$1/origin.conf"
    ln -sfn "$dir/objects" "$dir/$1/objects"
    run_on "$1" 0 "$dir/$1/log" nginx -p "$dir/$1" -c "$dir/$1/$1.conf" -e "$dir/$1/error.log"
}
start() {                                        # NAME ORIGIN: with an empty cache
    [ "$1" = direct ] && return
    rm -rf "${dir:?}/$1"
    mkdir -p "$dir/$1/cache" "$dir/$1/tmp"
    chmod 700 "$dir/$1/cache"
    if [ "$1" = headpond ]; then start_headpond "$(port_of "$2")"; else start_nginx "$1" "$(port_of "$2")"; fi
    await "$1" "$(port_of "$1")"
}
origin_bytes() { curl -s "http://127.0.0.1:$(port_of "$1")/-/stats" | sed 's/.*body_bytes=\([0-9]*\).*/\1/'; }

# ---- measuring ----
field() { local rest=" $2"; rest=${rest#* $1=}; echo "${rest%% *}"; }   # NAME LINE
# One row of $dir/rows: cell server value cpu p50_us p99_us first_us origin_ratio client_cpu others, the last being the
# share of the server's core that went to other processes: what the machine was not quiet by.
note() {                                         # CELL SERVER UNIT LINE ORIGIN_BYTES
    local value cpu asked
    asked=$(field bytes "$4")
    case $3 in
        k/s) value=$(awk "BEGIN { print $(field rps "$4") / 1e3 }"); cpu=$(field cpu_us_per_request "$4") ;;
        GB/s) value=$(awk "BEGIN { print $(field mbps "$4") / 1e3 }"); cpu=$(field cpu_s_per_gb "$4") ;;
        s) value=$(field seconds "$4"); cpu=$(field cpu_s "$4") ;;
        ms) value=$(awk "BEGIN { print $(field seconds "$4") * 1e3 }"); cpu=$(field cpu_s "$4") ;;
    esac
    echo "$1 $2 $value $cpu $(field p50_us "$4") $(field p99_us "$4") $(field first_p50_us "$4")" \
        "$(awk "BEGIN { print $5 / $asked }") $(field client_cpu "$4")" \
        "$(field others "$4")" >>"$dir/rows"
}
profile() {                                      # CELL SERVER COMMAND...: the same under perf
    local data=$dir/perf.data sampler pids
    pids=$(family "${pid_of[$2]}")
    perf record -q -e cpu-clock -F 4000 -p "${pids// /,}" -o "$data" -- sleep 600 >/dev/null 2>&1 &
    sampler=$!
    "${@:3}"
    kill -INT $sampler
    wait $sampler || :
    perf report -i "$data" --stdio --sort comm,dso,symbol 2>/dev/null | grep -v '^#' | head -60 >"$here/results/$1.$2.perf"
}
measure() {                                      # SERVER ORIGIN LOAD_ARGUMENTS...: the line of load
    local server=$1 origin=$2 pids=
    shift 2
    if [ "$server" = direct ]; then
        taskset -c 1 "$load" -a "127.0.0.1:$(port_of "$origin")" "$@"
    else
        pids=$(family "${pid_of[$server]}")
        taskset -c 1 "$load" -a "127.0.0.1:$(port_of "$server")" -P "${pids// /,}" -C 0 "$@"
    fi
}
observe() {                                      # CELL SERVER ...: measure, or measure and profile
    if [ "$PROFILE" != 0 ] && [ "$2" != direct ]; then profile "$1" "$2" measure "${@:2}"; else measure "${@:2}"; fi
}
rotate() {                                       # ROUND NAMES...: another one begins each round
    local by=$1
    shift
    by=$((by % $#))
    echo "${@:by+1}" "${@:1:by}"
}
wanted() {                                       # NAMES...: those that SERVERS names
    local name
    for name in "$@"; do ! has "$SERVERS" "$name" || printf '%s ' "$name"; done
}

# ---- the cells ----
# Hits: name, unit, what load asks
hit_cells=(
    "4k_c64 k/s -k /bench/small/####@4K -n 1000 -c 64"
    "4k_c256 k/s -k /bench/small/####@4K -n 1000 -c 256"
    "64k_c64 k/s -k /bench/medium/####@64K -n 1000 -c 64"
    "1m_c16 GB/s -k /bench/big@1G -r 1M -c 16"
    "8m_c16 GB/s -k /bench/big@1G -r 8M -c 16"
    "shard_c8 GB/s -k /bench/shard/#@128M -n 8 -c 8 -q"
)
# Cold: name, unit, origin, servers (by commas), rounds, what load asks
cold_cells=(
    "cold1g_fast s fast headpond,nginxna,nginx,nginxs,direct $ROUNDS -k /bench/big@1G -N 1"
    "cold1g_far s far headpond,nginxna,nginxs,direct $SLOW_ROUNDS -k /bench/big@1G -N 1"
    "coal256m_far s far headpond,nginxna,nginxs $SLOW_ROUNDS -k /bench/far@256M -N 64 -c 64"
    "tail1m_far ms far headpond,nginxna,nginxs,direct $SLOW_ROUNDS -k /bench/big@1G -r 1M -f 1023M -N 1"
)
chosen() { [ -z "$CELLS" ] || has "$CELLS" "$1"; }

make_objects() {
    mkdir -p "$dir/objects"
    "$store" -d "$dir/objects" -m bench/small/####@4K -n 1000
    "$store" -d "$dir/objects" -m bench/medium/####@64K -n 1000
    "$store" -d "$dir/objects" -m bench/big@1G
    "$store" -d "$dir/objects" -m bench/shard/#@128M -n 8
    "$store" -d "$dir/objects" -m bench/far@256M
    sync -f "$dir/objects"
}
warm() {                                         # SERVER: every object twice, the bytes compared once
    local check pass
    for pass in 1 2; do
        check=; [ $pass = 2 ] || check=-v
        measure "$1" fast $check -q -k /bench/small/####@4K -n 1000 -c 8 -N 1000
        measure "$1" fast $check -q -k /bench/medium/####@64K -n 1000 -c 8 -N 1000
        measure "$1" fast $check -q -k /bench/shard/#@128M -n 8 -c 2 -N 8
        measure "$1" fast $check -q -k /bench/big@1G -N 1
    done >/dev/null || die "$1 served wrong answers while it was warmed"
}
run_hits() {
    local cell name unit arguments round server line before any=
    for cell in "${hit_cells[@]}"; do chosen "${cell%% *}" && any=1; done
    [ -n "$any" ] || return 0
    local servers; servers=$(wanted headpond nginxna nginx nginxs static)
    for server in $servers; do
        start "$server" fast
        echo "warming $server" >&2
        [ "$server" = static ] || warm "$server"
    done
    for ((round = 0; round < ROUNDS; round++)); do
        for cell in "${hit_cells[@]}"; do
            read -r name unit arguments <<<"$cell"
            chosen "$name" || continue
            for server in $(rotate "$round" $servers); do
                before=$(origin_bytes fast)
                line=$(observe "$name" "$server" fast -w $warm_s -t $measure_s $arguments) || die "$name: $server answered wrongly"
                note "$name" "$server" "$unit" "$line" $(($(origin_bytes fast) - before))
            done
        done
        echo "hits: round $((round + 1)) of $ROUNDS done, ${SECONDS} s" >&2
    done
    for server in $servers; do end "$server"; rm -rf "${dir:?}/$server"; done
}
run_cold() {
    local cell name unit origin servers rounds arguments round server line before
    for cell in "${cold_cells[@]}"; do
        read -r name unit origin servers rounds arguments <<<"$cell"
        chosen "$name" || continue
        servers=$(wanted ${servers//,/ })
        for ((round = 0; round < rounds; round++)); do
            for server in $(rotate "$round" $servers); do
                [ "$server" = direct ] || "$touch" 2048
                start "$server" "$origin"
                before=$(origin_bytes "$origin")
                line=$(observe "$name" "$server" "$origin" -l 500 $arguments) || die "$name: $server answered wrongly"
                note "$name" "$server" "$unit" "$line" $(($(origin_bytes "$origin") - before))
                [ "$server" = direct ] || end "$server"
                rm -rf "${dir:?}/$server"
            done
        done
        echo "$name done, ${SECONDS} s" >&2
    done
}

# ---- the table ----
units() {
    local cell
    for cell in "${hit_cells[@]}" "${cold_cells[@]}"; do echo "$cell" | cut -d' ' -f1,2; done
}
report() {
    local machine commit
    machine="$(nproc)x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), Linux $(uname -r)"
    commit=$(git -C "$top" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    [ -z "$(git -C "$top" status --porcelain -uno 2>/dev/null)" ] || commit=$commit+
    mkdir -p "$here/results"
    units >"$dir/units"
    echo "$machine, $commit, $ROUNDS rounds; median [min-max]; ratio to the best nginx cache, above 1 = better"
    awk -v date="$(date -u +%Y-%m-%dT%H:%MZ)" -v commit="$commit" -v machine="$machine" \
        -v tsv="$here/results/last.tsv" -f "$here/table.awk" "$dir/units" "$dir/rows"
}

trap finish EXIT
trap 'exit 130' INT TERM
rm -rf "$dir"
mkdir -p "$dir/fast" "$dir/far"
SECONDS=0
make_objects
run_on fast 1 "$dir/fast/log" "$store" -d "$dir/objects" -p 9100
run_on far 1 "$dir/far/log" "$store" -d "$dir/objects" -p 9101 -l 20 -r 100000000
await fast 9100
await far 9101
echo "objects made, ${SECONDS} s" >&2
run_hits
run_cold
report
