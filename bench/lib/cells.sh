# The cells of the bench, which servers take part in each, and how they take turns. Sourced by bench/run.sh, which sets
# dir, store, touch, ROUNDS, SLOW_ROUNDS, CELLS, warm_s, measure_s. A server that cannot do a cell is not in its list:
#   haproxy keeps small objects only;
#   ats passes a range of an object that it has not got through and keeps nothing of it: no cold ranges;
#   varnish holds all in memory: no hits from disk;
#   atss has no 20,000 requests a second in one core: no latency at that rate.
many=headpond,nginxna,nginx,nginxs,varnish,ats,atss,static
small=$many,haproxy

# Hits: name, unit, servers, what load asks. 4k_many is what a server does of its requests per second with 64 connections
# when there are 1024: how it takes their number, apart from its pace and from the machine's.
hits_cells=(
    "4k_c1 k/s $small -k /bench/small/####@4K -n 1000 -c 1"
    "4k_c64 k/s $small -k /bench/small/####@4K -n 1000 -c 64"
    "4k_c256 k/s $small -k /bench/small/####@4K -n 1000 -c 256"
    "4k_c1024 k/s $small -k /bench/small/####@4K -n 1000 -c 1024 -w 0.5"
    "4k_many x headpond,nginxna -k /bench/small/####@4K -n 1000"
    "4k_signed k/s $small -k /bench/small/####@4K -n 1000 -c 64 -S us-east-1"
    "4k_q20k us ${small/,atss/} -k /bench/small/####@4K -n 1000 -c 64 -R 20000"
    "64k_c64 k/s $small -k /bench/medium/####@64K -n 1000 -c 64"
    "64k_c256 k/s $small -k /bench/medium/####@64K -n 1000 -c 256"
    "1m_c16 GB/s $many -k /bench/big@1G -r 1M -c 16"
    "8m_c16 GB/s $many -k /bench/big@1G -r 8M -c 16"
    "shard_c1 GB/s $many -k /bench/shard/#@128M -n 8 -c 1 -q"
    "shard_c8 GB/s $many -k /bench/shard/#@128M -n 8 -c 8 -q"
    "shard_c32 GB/s $many -k /bench/shard/#@128M -n 8 -c 32 -q -t 2"
)
# The same with one worker and with two (_w1, _w2), on both cores, the client beside them; _part: each worker has 30 % of a
# core, so that some is left for the client, where the kernel has cgroup v1's controller for it; 4k_workers: how many times as
# much two of these bring as one, in turns.
pair=headpond_w1,headpond_w2,nginxna_w1,nginxna_w2
pairs_cells=(
    "4k_c64_w2 k/s $pair -k /bench/small/####@4K -n 1000 -c 64"
    "shard_c8_w2 GB/s $pair -k /bench/shard/#@128M -n 8 -c 8 -q"
)
if [ -n "$parts" ]; then
    pairs_cells+=("4k_c64_part k/s $pair -k /bench/small/####@4K -n 1000 -c 64"
        "4k_workers x headpond_w2,nginxna_w2 -k /bench/small/####@4K -n 1000 -c 64")
elif [ -n "${BENCH_INSIDE:-}" ]; then
    echo "bench: no CPU controller of cgroup v1 here: without 4k_c64_part, 4k_workers" >&2
fi
# Over TLS, records made by OpenSSL on both sides, one cipher for all. The client has to decrypt, on its core: where it is
# near its limit, the server's CPU per GB is the figure to look at.
secret=headpond_tls,nginxna_tls
tls_cells=(
    "tls_8m_c16 GB/s $secret -k /bench/big@1G -r 8M -c 16"
)
# Hits from disk: 2 GiB, of which 5 % fit into the memory that servers are given, so that at most these come from there. What
# is asked is asked once in a pass, and the pages of the cache files are dropped before each: the kernel has none. Servers that
# read through the kernel's page cache are held to the same 5 % of pages (cage): else all that was read ahead of a range would
# stay until somebody asks for it. atsd is ats with a RAM cache of these 5 %. ahead: with Linux's own read-ahead (servers.sh).
disk_memory_mib=102
disk_objects="/bench/disk/##@128M -n 16"
disk=headpond,nginxna,nginx,nginxs,atsd,static
disk_cells=(
    "disk_1m GB/s $disk -k $disk_objects -r 1M -e -c 16 -N 1024"
    "disk_shard GB/s $disk -k $disk_objects -q -c 4 -N 48"
    "disk_64k GB/s $disk -k $disk_objects -r 64K -e -c 16 -N 32768"
)
ahead_cells=("disk_shard_ahead GB/s $disk -k $disk_objects -q -c 4 -N 48")
if [ "$found_ahead" = $linux_ahead ]; then
    ahead_cells=()
elif [ ! -w "$(read_ahead_file)" ]; then
    ahead_cells=()
    [ -z "${BENCH_INSIDE:-}" ] || echo "bench: the disk's read-ahead cannot be set here: without disk_shard_ahead" >&2
fi
# Cold: name, unit, origin, servers, rounds, what load asks
cold_cells=(
    "cold1g_fast s fast headpond,nginxna,nginx,nginxs,varnish,ats,atss,direct $ROUNDS -k /bench/big@1G -N 1"
    "cold256m_far s far headpond,nginxna,nginxs,varnish,ats,direct $SLOW_ROUNDS -k /bench/far@256M -N 1"
    "cold1g_far s far headpond,nginxna,nginxs,varnish,ats,atss,direct $SLOW_ROUNDS -k /bench/big@1G -N 1"
    "coal256m_fast s fast headpond,nginxna,nginxs,varnish,ats,atss,direct $ROUNDS -k /bench/far@256M -N 64 -c 64"
    "coal256m_far s far headpond,nginxna,nginxs,varnish,ats,atss $SLOW_ROUNDS -k /bench/far@256M -N 64 -c 64"
    "tail1m_far ms far headpond,nginxna,nginxs,varnish,atss,direct $SLOW_ROUNDS -k /bench/big@1G -r 1M -f 1023M -N 1"
    "scattered ms far headpond,nginxs,atss,direct $SLOW_ROUNDS -k /bench/big@1G -r 1M -e -N 64 -c 64"
    "idle10k KiB fast ${many/,atss/} $SLOW_ROUNDS -k /bench/small/####@4K -n 1000 -N 10000 -c 10000 -M"
)
lost=
lose() {                                         # CELL SERVER: no row of it in this round; an hour of others is kept; its last words
    tail -qn 3 "$dir/$2"/*log >&2 2>/dev/null || :
    echo "bench: $1: $2 answered wrongly, or keeps growing: this round is without it" >&2
    lost="$lost $1:$2"
}
failed() { echo "bench: $*" >&2; }
chosen() { [ -z "$CELLS" ] || has "$CELLS" "$1"; }
units() {                                        # name and unit of each cell, in the order of the table
    local cell
    for cell in "${hits_cells[@]}" "${pairs_cells[@]}" "${tls_cells[@]}" "${cold_cells[@]}" "${disk_cells[@]}" \
        "${ahead_cells[@]}"; do
        echo "$cell" | cut -d' ' -f1,2
    done
}
rotate() {                                       # ROUND NAMES...: another one begins each round
    local by=$1
    shift
    [ $# -gt 0 ] || return 0
    by=$((by % $#))
    echo "${@:by+1}" "${@:1:by}"
}

make_objects() {
    mkdir -p "$dir/objects"
    "$store" -d "$dir/objects" -m bench/small/####@4K -n 1000
    "$store" -d "$dir/objects" -m bench/medium/####@64K -n 1000
    "$store" -d "$dir/objects" -m bench/big@1G
    "$store" -d "$dir/objects" -m bench/shard/#@128M -n 8
    "$store" -d "$dir/objects" -m bench/far@256M
    [ -z "$(servers_of "${disk_cells[@]}" "${ahead_cells[@]}")" ] || "$store" -d "$dir/objects" -m bench/disk/##@128M -n 16
    sync -f "$dir/objects"
}

# ---- hits ----
ask_small() { measure "$1" fast -q -k /bench/small/####@4K -n 1000 -c 8 -N 1000 "${@:2}"; }
ask_medium() { measure "$1" fast -q -k /bench/medium/####@64K -n 1000 -c 8 -N 1000 "${@:2}"; }
ask_shards() { measure "$1" fast -q -k /bench/shard/#@128M -n 8 -c 2 -N 8 "${@:2}"; }
ask_big() { measure "$1" fast -q -k /bench/big@1G -N 1 "${@:2}"; }
ask_disk() { measure "$1" fast -q -k $disk_objects -c 2 -N 16 "${@:2}"; }
ask_all() {                                      # SERVER LOAD_ARGUMENTS...: every object of its cells once
    [ "$memory" = 4GiB ] || { ask_disk "$@"; return; }
    ask_small "$@"
    case $1 in
        haproxy) ask_medium "$@" ;;
        *_w?) ask_shards "$@" ;;
        *_tls) ask_big "$@" ;;
        *) ask_medium "$@"; ask_shards "$@"; ask_big "$@" ;;
    esac
}
# Every object twice, and again while the origin is still asked: Traffic Server keeps some only the second time. The bytes
# of the last pass are those that are compared. Who fails takes no part: the others are measured all the same.
warm() {                                         # SERVER
    local pass before
    [ "$1" != static ] || return 0
    ask_all "$1" >/dev/null || { failed "$1 served wrong answers while it was warmed"; return 1; }
    for pass in 2 3 4 5; do
        before=$(origin_bytes fast)
        ask_all "$1" -v >/dev/null || { failed "$1 served wrong bytes while it was warmed"; return 1; }
        [ "$(origin_bytes fast)" != "$before" ] || return 0
    done
    failed "$1 still asks the origin for what was asked of it $pass times"
    return 1
}
servers_of() {                                   # CELLS...: that take part in the chosen ones of them, each once; _w1 with _w2
    local cell name unit servers arguments all=
    for cell in "$@"; do
        read -r name unit servers arguments <<<"$cell"
        ! chosen "$name" || all="$all ${servers//,/ }"
    done
    echo "$all" | tr ' ' '\n' | awk '{ one = $1 } sub(/_w2$/, "_w1", one) && !seen[one]++ { print one } NF && !seen[$1]++'
}
# Makes the kernel forget what a server keeps in files, or sends as files.
forget() {                                       # SERVER
    local place=$dir/$1/cache
    [ "$1" != static ] || place=$dir/objects/bench/disk
    sync -f "$place"
    find "$place" -type f -size +64k -exec dd if={} iflag=nocache count=0 status=none \;
}
run_hits() {                                     # hits, pairs, tls, disk or ahead
    local cell name unit among arguments round server line before servers warmed= limited=
    local -n cells=$1_cells
    servers=$(wanted $(servers_of "${cells[@]}"))
    case $1 in disk | ahead) limited=yes memory=${disk_memory_mib}MiB ats_memory=$((disk_memory_mib << 20)) ;; esac
    for server in $servers; do
        start "$server" fast
        echo "warming $server" >&2
        if ! warm "$server"; then
            lose "$1" "$server"
            end "$server"
            rm -rf "${dir:?}/$server"
            continue
        fi
        warmed="$warmed $server"
        [ -z "$limited" ] || { forget "$server"; cage "$server" $disk_memory_mib; }
    done
    [ -n "$warmed" ] || return 0
    for ((round = 0; round < ROUNDS; round++)); do
        for cell in "${cells[@]}"; do
            read -r name unit among arguments <<<"$cell"
            chosen "$name" || continue
            for server in $(rotate "$round" $(wanted ${among//,/ })); do
                has "$warmed" "$server" || continue
                [ -z "$limited" ] || forget "$server"
                before=$(origin_bytes fast)
                line=$(observe "$name" "$server" fast -w $warm_s -t $measure_s $arguments) || { lose "$name" "$server"; continue; }
                note "$name" "$server" "$unit" "$line" $(($(origin_bytes fast) - before))
            done
        done
        echo "$1: round $((round + 1)) of $ROUNDS done, ${SECONDS} s" >&2
    done
    for server in $warmed; do end "$server"; rm -rf "${dir:?}/$server"; done
}

# ---- cold ----
settled() {                                      # SERVER: it has served a thousand objects, and its memory stands still
    local was=0 now tries
    ask_small "$1" >/dev/null || return 1
    for ((tries = 0; tries < 100; tries++)); do
        now=$(cat $(family "${pid_of[$1]}" | sed 's|[0-9]\+|/proc/&/status|g') | awk '/^VmRSS/ { sum += $2 } END { print sum }')
        [ "$now" != "$was" ] || return 0
        was=$now
        read -rt 0.3 <> <(:) || :
    done
    return 1
}
# What a server does once it is started, whatever that is, is not measured: waits until it rests, 2 s at most.
rested() {                                       # SERVER
    local was= now tries
    for ((tries = 0; tries < 20; tries++)); do
        now=$(cat $(family "${pid_of[$1]}" | sed 's|[0-9]\+|/proc/&/stat|g') | awk '{ sum += $14 + $15 } END { print sum }')
        [ "$now" != "$was" ] || return 0
        was=$now
        read -rt 0.1 <> <(:) || :
    done
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
                [ "$server" = direct ] || rested "$server"
                line=
                [ "$unit" != KiB ] || settled "$server" || line=lost
                before=$(origin_bytes "$origin")
                [ -n "$line" ] || line=$(observe "$name" "$server" "$origin" -l 500 $arguments) || line=lost
                if [ "$line" != lost ]; then
                    note "$name" "$server" "$unit" "$line" $(($(origin_bytes "$origin") - before))
                else
                    lose "$name" "$server"
                fi
                [ "$server" = direct ] || end "$server"
                rm -rf "${dir:?}/$server"
            done
        done
        echo "$name done, ${SECONDS} s" >&2
    done
}
