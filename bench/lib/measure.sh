# Measuring: one call of the load client at one server becomes one row of $dir/rows. Sourced by bench/run.sh, which sets
# dir, here, load, SERVERS, PROFILE.
origin_bytes() { curl -s "http://127.0.0.1:$(port_of "$1")/-/stats" | sed 's/.*body_bytes=\([0-9]*\).*/\1/'; }
field() { local rest=" $2"; rest=${rest#* $1=}; echo "${rest%% *}"; }   # NAME LINE
# A row: cell server value cpu p50_us p99_us first_us origin_ratio client_cpu others, the last being the share of the
# server's core that went to other processes: what the machine was not quiet by.
note() {                                         # CELL SERVER UNIT LINE ORIGIN_BYTES
    local value cpu asked
    asked=$(field bytes "$4")
    case $3 in
        k/s) value=$(awk "BEGIN { print $(field rps "$4") / 1e3 }"); cpu=$(field cpu_us_per_request "$4") ;;
        GB/s) value=$(awk "BEGIN { print $(field mbps "$4") / 1e3 }"); cpu=$(field cpu_s_per_gb "$4") ;;
        x) value=$(field times "$4"); cpu=$(field cpu_us_per_request "$4") ;;
        us) value=$(field p50_us "$4"); cpu=$(field cpu_us_per_request "$4") ;;
        s) value=$(field seconds "$4"); cpu=$(field cpu_s "$4") ;;
        ms) value=$(awk "BEGIN { print $(field seconds "$4") * 1e3 }"); cpu=$(field cpu_s "$4") ;;
        KiB) value=$(field kib_per_connection "$4"); cpu=$(field cpu_s "$4") ;;
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
    local server=$1 origin=$2 asked="${*:3}" cores pids
    shift 2
    [ "$(base_of "$server")" = headpond ] || set -- ${asked/-S us-east-1/} # the others verify no signatures
    case $server in *_tls) set -- -T "$@" ;; esac
    if [ "$server" = direct ]; then
        taskset -c 1 "$load" -a "127.0.0.1:$(port_of "$origin")" "$@"
        return
    fi
    pids=$(family "${pid_of[$server]}")
    cores=$(cores_of "$server")
    [ "$cores" != 0 ] || { cores=1; set -- -C 0 "$@"; }                    # on both cores nothing tells others from the client
    taskset -c "$cores" "$load" -a "127.0.0.1:$(port_of "$server")" -P "${pids// /,}" "$@"
}
# Two ways of measuring in turns: a machine whose pace changes within the minute would tell more of itself than of the server.
# The line is that of the last turn, and what the second way brought of the first in all of them.
turns=6
add() { awk "BEGIN { print $1 + $(field rps "$2") }"; }                    # SUM LINE
many_to_few() {                                  # SERVER ORIGIN LOAD_ARGUMENTS...: 64 connections, then 1024
    local turn line few=0 many=0
    for ((turn = 0; turn < turns; turn++)); do
        line=$(measure "$@" -c 64) || return 1
        few=$(add "$few" "$line")
        line=$(measure "$@" -c 1024 -w 0.5) || return 1
        many=$(add "$many" "$line")
    done
    echo "$line times=$(awk "BEGIN { print $many / $few }")"
}
two_to_one() {                                   # SERVER_w2 ORIGIN LOAD_ARGUMENTS...: one worker, then two, parts of cores for each
    local turn line one=0 two=0 single=${1%_w2}_w1
    for ((turn = 0; turn < turns; turn++)); do
        line=$(rationed "$single" measure "$single" "${@:2}") || return 1
        one=$(add "$one" "$line")
        line=$(rationed "$1" measure "$@") || return 1
        two=$(add "$two" "$line")
    done
    echo "$line times=$(awk "BEGIN { print $two / $one }")"
}
observe() {                                      # CELL SERVER ...: measure, or measure and profile
    local how=measure
    case $1 in *_many) how=many_to_few ;; *_workers) how=two_to_one ;; esac
    [ "$PROFILE" = 0 ] || [ "$2" = direct ] || how="profile $1 $2 $how"
    case $1 in *_part) how="rationed $2 $how" ;; esac
    $how "${@:2}"
}
