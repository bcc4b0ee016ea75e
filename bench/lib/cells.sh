# The cells of the bench, which servers take part in each, and how they take turns. Sourced by bench/run.sh, which sets
# dir, store, touch, ROUNDS, SLOW_ROUNDS, CELLS, warm_s, measure_s. A server that cannot do a cell is not in its list:
#   haproxy keeps small objects only;
#   ats passes a range of an object that it has not got through and keeps nothing of it: no cold ranges.
many=headpond,nginxna,nginx,nginxs,varnish,ats,atss,static
small=$many,haproxy

# Hits: name, unit, servers, what load asks
hits_cells=(
    "4k_c64 k/s $small -k /bench/small/####@4K -n 1000 -c 64"
    "4k_c256 k/s $small -k /bench/small/####@4K -n 1000 -c 256"
    "64k_c64 k/s $small -k /bench/medium/####@64K -n 1000 -c 64"
    "1m_c16 GB/s $many -k /bench/big@1G -r 1M -c 16"
    "8m_c16 GB/s $many -k /bench/big@1G -r 8M -c 16"
    "shard_c8 GB/s $many -k /bench/shard/#@128M -n 8 -c 8 -q"
)
# Cold: name, unit, origin, servers, rounds, what load asks
cold_cells=(
    "cold1g_fast s fast headpond,nginxna,nginx,nginxs,varnish,ats,atss,direct $ROUNDS -k /bench/big@1G -N 1"
    "cold1g_far s far headpond,nginxna,nginxs,varnish,ats,atss,direct $SLOW_ROUNDS -k /bench/big@1G -N 1"
    "coal256m_far s far headpond,nginxna,nginxs,varnish,ats,atss $SLOW_ROUNDS -k /bench/far@256M -N 64 -c 64"
    "tail1m_far ms far headpond,nginxna,nginxs,varnish,atss,direct $SLOW_ROUNDS -k /bench/big@1G -r 1M -f 1023M -N 1"
)
chosen() { [ -z "$CELLS" ] || has "$CELLS" "$1"; }
units() {                                        # name and unit of each cell, in the order of the table
    local cell
    for cell in "${hits_cells[@]}" "${cold_cells[@]}"; do echo "$cell" | cut -d' ' -f1,2; done
}
rotate() {                                       # ROUND NAMES...: another one begins each round
    local by=$1
    shift
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
    sync -f "$dir/objects"
}

# ---- hits ----
ask_all() {                                      # SERVER LOAD_ARGUMENTS...: every object once
    measure "$1" fast -q -k /bench/small/####@4K -n 1000 -c 8 -N 1000 "${@:2}"
    measure "$1" fast -q -k /bench/medium/####@64K -n 1000 -c 8 -N 1000 "${@:2}"
    [ "$1" != haproxy ] || return 0
    measure "$1" fast -q -k /bench/shard/#@128M -n 8 -c 2 -N 8 "${@:2}"
    measure "$1" fast -q -k /bench/big@1G -N 1 "${@:2}"
}
# Every object twice, and again while the origin is still asked: Traffic Server keeps some only the second time. The bytes
# of the last pass are those that are compared.
warm() {                                         # SERVER
    local pass before
    [ "$1" != static ] || return 0
    ask_all "$1" >/dev/null || die "$1 served wrong answers while it was warmed"
    for pass in 2 3 4 5; do
        before=$(origin_bytes fast)
        ask_all "$1" -v >/dev/null || die "$1 served wrong bytes while it was warmed"
        [ "$(origin_bytes fast)" != "$before" ] || return 0
    done
    die "$1 still asks the origin for what was asked of it $pass times"
}
servers_of() {                                   # CELLS...: that take part in the chosen ones of them, each once
    local cell name unit servers arguments all=
    for cell in "$@"; do
        read -r name unit servers arguments <<<"$cell"
        ! chosen "$name" || all="$all ${servers//,/ }"
    done
    echo "$all" | tr ' ' '\n' | awk 'NF && !seen[$1]++'
}
run_hits() {
    local cell name unit among arguments round server line before servers
    servers=$(wanted $(servers_of "${hits_cells[@]}"))
    [ -n "$servers" ] || return 0
    for server in $servers; do
        start "$server" fast
        echo "warming $server" >&2
        warm "$server"
    done
    for ((round = 0; round < ROUNDS; round++)); do
        for cell in "${hits_cells[@]}"; do
            read -r name unit among arguments <<<"$cell"
            chosen "$name" || continue
            for server in $(rotate "$round" $(wanted ${among//,/ })); do
                before=$(origin_bytes fast)
                line=$(observe "$name" "$server" fast -w $warm_s -t $measure_s $arguments) || die "$name: $server answered wrongly"
                note "$name" "$server" "$unit" "$line" $(($(origin_bytes fast) - before))
            done
        done
        echo "hits: round $((round + 1)) of $ROUNDS done, ${SECONDS} s" >&2
    done
    for server in $servers; do end "$server"; rm -rf "${dir:?}/$server"; done
}

# ---- cold ----
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
