# The servers of the bench: what each needs, where it listens, how it starts and ends. Sourced by bench/run.sh, which sets
# dir, here, headpondd, SERVERS. Their configuration stands in bench/peers/, with what is between @ filled in here.
#
# A name with _wN behind it is the same server with N workers on both cores, with _tls the same over TLS; atsd is ats with
# little memory.
declare -A pid_of=()
memory=4GiB ats_memory=6442450944                # of headpond, and of Traffic Server's RAM cache: all of the data

base_of() { local name=${1%_w?}; name=${name%_tls}; [ "$name" != atsd ] || name=ats; echo "$name"; }
workers_of() { case $1 in *_w?) echo "${1##*_w}" ;; *) echo 1 ;; esac; }
cores_of() { case $1 in *_w?) echo 0,1 ;; *) echo 0 ;; esac; }
port_of() {
    local port
    local name=${1%_w?}
    case ${name%_tls} in
        headpond) port=8000 ;; nginxna) port=8001 ;; nginx) port=8002 ;; nginxs) port=8003 ;; static) port=8004 ;;
        varnish) port=8005 ;; ats) port=8006 ;; atss) port=8007 ;; haproxy) port=8008 ;; atsd) port=8009 ;;
        fast) port=9100 ;; far) port=9101 ;;
        *) die "unknown server \"$1\"" ;;
    esac
    case $1 in *_w?) port=$((port + 10 * ${1##*_w})) ;; *_tls) port=$((port + 30)) ;; esac
    echo "$port"
}
wanted() {                                       # NAMES...: those that SERVERS names
    local name
    for name in "$@"; do ! has "$SERVERS" "$(base_of "$name")" || printf '%s ' "$name"; done
}

# ---- what they need ----
need() {                                         # SERVER FILE PACKAGE
    command -v "$2" >/dev/null || [ -e "$2" ] ||
        die "$1 needs Debian's $3 (make bench installs it), or leave it out: SERVERS=\"...\""
}
need_servers() {
    local name
    for name in $SERVERS; do
        case $name in
            headpond)
                [ -x "$headpondd" ] || die "$headpondd is not built (make), or leave it out: SERVERS=\"nginxna nginx nginxs\""
                ;;
            nginx | nginxna | nginxs | static) need "$name" nginx nginx-light ;;
            varnish) need "$name" varnishd varnish; need "$name" cc gcc ;;
            ats | atss) need "$name" traffic_server trafficserver ;;
            haproxy) need "$name" haproxy haproxy ;;
            direct) ;;
            *) die "unknown server \"$name\" in SERVERS" ;;
        esac
        [ "$name" != atss ] || need atss /usr/lib/trafficserver/modules/slice.so trafficserver-experimental-plugins
    done
}

# ---- processes ----
finish() {
    trap - EXIT INT TERM
    exec 2>/dev/null                             # the shell would tell of each process that is killed here
    for name in "${!pid_of[@]}"; do kill -KILL $(family "${pid_of[$name]}") || :; done
    wait || :
    for name in "${!pid_of[@]}"; do uncage "$name"; done
    rmdir "$parts"/headpond-bench-$$-* || :      # of what was measured in a part of its cores
    [ "$found_ahead" = "$(read_ahead)" ] || echo "$found_ahead" >"$(read_ahead_file)" || :
    rm -rf "$dir"
}
family() { echo "$1" $(pgrep -P "$1" 2>/dev/null || :); }
run_on() {                                       # NAME CORES LOG COMMAND...: in the background, ends with this shell
    local name=$1 cores=$2 log=$3
    shift 3
    setpriv --pdeathsig KILL taskset -c "$cores" "$@" </dev/null >>"$log" 2>&1 &
    pid_of[$name]=$!
}
end() {                                          # NAME
    local pids; pids=$(family "${pid_of[$1]}")
    kill -KILL $pids 2>/dev/null || :
    wait "${pid_of[$1]}" 2>/dev/null || :
    unset "pid_of[$1]"
    uncage "$1"
}
controller() { awk -v name="$1" '$3 == "cgroup" && ("," $4 ",") ~ ("," name ",") { print $2; exit }' /proc/mounts; } # of cgroup v1
# A limit for the pages of files that a server which reads through the kernel has in memory: so many MiB, and a little for what
# else it takes from now on. What its processes have by now stays charged to where they come from, by the memory controller of
# cgroup v1, which counts no socket buffers either; that of v2 does, and would need to know how many.
cages=$(controller memory)
cage_of() { echo "$cages/headpond-bench-$$-$1"; }
cage() {                                         # NAME MIB
    local pid
    case $1 in nginx* | static) ;; *) return ;; esac
    if [ -z "$cages" ] || ! mkdir "$(cage_of "$1")" 2>/dev/null; then
        echo "bench: no memory controller of cgroup v1 here: $1 may have all of the machine's memory for pages of files" >&2
        return
    fi
    echo $((($2 + 8) << 20)) >"$(cage_of "$1")/memory.limit_in_bytes"
    for pid in $(family "${pid_of[$1]}"); do echo "$pid" >"$(cage_of "$1")/cgroup.procs" || :; done
}
uncage() {                                       # NAME, whose processes were killed
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        [ -n "$cages" ] && [ -d "$(cage_of "$1")" ] || return 0
        ! rmdir "$(cage_of "$1")" 2>/dev/null || return 0
        read -rt 0.03 <> <(:) || :
    done
    echo "bench: $(cage_of "$1") is left behind" >&2
}
# A part of a core for each worker while something is run. Where they need all of both cores nothing is left for the client, and
# the faster a server is, the less a second worker can add: of parts, two workers have just twice what one has.
parts=$(controller cpu)
part_us=6000 of_us=20000
rationed() {                                     # NAME COMMAND...
    local place=$parts/headpond-bench-$$-$1 pid status=0
    mkdir "$place" && echo $of_us >"$place/cpu.cfs_period_us" &&
        echo $((part_us * $(workers_of "$1"))) >"$place/cpu.cfs_quota_us" || return 1
    for pid in $(family "${pid_of[$1]}"); do echo "$pid" >"$place/cgroup.procs" || status=1; done
    [ $status != 0 ] || "${@:2}" || status=$?
    for pid in $(family "${pid_of[$1]}"); do echo "$pid" >"$parts/cgroup.procs" || :; done
    rmdir "$place"
    return $status
}
await() {                                        # NAME: until it serves a small object
    local tries=0 scheme=http
    case $1 in *_tls) scheme=https ;; esac
    until curl -skf -o /dev/null --max-time 5 "$scheme://127.0.0.1:$(port_of "$1")/bench/small/0000@4K"; do
        tries=$((tries + 1))
        kill -0 "${pid_of[$1]}" 2>/dev/null || { tail -n 5 "$dir/$1"/*log >&2; die "$1 ended at its start"; }
        [ $tries -lt 300 ] || { tail -n 5 "$dir/$1"/*log >&2; die "$1 does not answer"; }
        read -rt 0.03 <> <(:) || :
    done
}

# What the disk under $dir is read ahead by, KiB: servers that read through the kernel live on it. A machine may set much more
# than Linux does by itself; shards from disk are then measured with both. A file is read as the disk was set when it was
# opened, and nginx keeps its files open: servers start anew for that.
linux_ahead=128
read_ahead_file() {
    local disk; disk=/sys/dev/block/$(stat -c %Hd:%Ld "$(dirname "$dir")")
    [ -e "$disk/queue" ] || disk=$disk/..        # a partition
    echo "$disk/queue/read_ahead_kb"
}
read_ahead() { cat "$(read_ahead_file)" 2>/dev/null || echo unknown; }
found_ahead=$(read_ahead)
by_linux_ahead() {                               # COMMAND...; if that ends the bench, finish() sets it back
    echo $linux_ahead >"$(read_ahead_file)"
    "$@"
    echo "$found_ahead" >"$(read_ahead_file)"
}

# ---- starting ----
fill_in() {                                      # NAME ORIGIN FILE [TO]: a file of bench/peers/ into its directory
    sed -e "s|@DIR@|$dir/$1|g" -e "s|@PORT@|$(port_of "$1")|" -e "s|@ORIGIN@|$(port_of "$2")|" -e "s|@RAM@|$ats_memory|" \
        -e "s|@WORKERS@|$(workers_of "$1")|" "$here/peers/$3" >"$dir/$1/${4:-$3}"
}
certify() {                                      # NAME: a certificate and its key into its directory
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1 \
        -keyout "$dir/$1/key.pem" -out "$dir/$1/cert.pem" 2>/dev/null || die "openssl makes no certificate"
    chmod 600 "$dir/$1/key.pem"
}
start_headpond() {                               # NAME ORIGIN
    local secure=
    case $1 in *_tls) secure="--set server.tls_cert=$dir/$1/cert.pem --set server.tls_key=$dir/$1/key.pem" ;; esac
    AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true HEADPOND_CONFIG=/dev/null \
        run_on "$1" "$(cores_of "$1")" "$dir/$1/log" "$headpondd" --allow-root \
        --upstream "http://127.0.0.1:$(port_of "$2")" --cache "$dir/$1/cache" --size 4GiB --listen "127.0.0.1:$(port_of "$1")" \
        --set server.workers="$(workers_of "$1")" --set cache.memory="$memory" --set cache.ttl=1d --set cache.min_free=256MiB \
        $secure --set server.max_connections=16000 --set server.max_connections_per_address=16000 \
        --set admin.listen="unix:$dir/$1/admin.sock"
}
start_nginx() {                                  # NAME ORIGIN
    local file top=${1%_w?}
    for file in main http cache "$top"; do fill_in "$1" "$2" "$file.conf"; done
    ln -sfn "$dir/objects" "$dir/$1/objects"
    run_on "$1" "$(cores_of "$1")" "$dir/$1/log" nginx -p "$dir/$1" -c "$dir/$1/$top.conf" -e "$dir/$1/error.log"
}
# Its log of each request is masked, tag by tag: written to shared memory, it costs and nobody reads it here.
varnish_quiet=-SessOpen,-SessClose,-BackendOpen,-BackendClose,-BackendStart,-Length,-ReqMethod,-ReqURL,-ReqProtocol
varnish_quiet+=,-ReqStatus,-ReqReason,-ReqHeader,-ReqUnset,-ReqStart,-ReqAcct,-RespMethod,-RespURL,-RespProtocol,-RespStatus
varnish_quiet+=,-RespReason,-RespHeader,-RespUnset,-BereqMethod,-BereqURL,-BereqProtocol,-BereqHeader,-BereqUnset,-BereqAcct
varnish_quiet+=,-BerespProtocol,-BerespStatus,-BerespReason,-BerespHeader,-BerespUnset,-TTL,-Fetch_Body,-VCL_call,-VCL_return
varnish_quiet+=,-VCL_use,-VCL_Log,-Hit,-HitMiss,-HitPass,-Begin,-End,-Link,-Storage,-Timestamp,-Filters,-Gzip
start_varnish() {                                # NAME ORIGIN
    fill_in "$1" "$2" varnish.vcl
    run_on "$1" "$(cores_of "$1")" "$dir/$1/log" varnishd -F -j none -n "$dir/$1/tmp" -f "$dir/$1/varnish.vcl" -T none \
        -a "127.0.0.1:$(port_of "$1"),HTTP" -s malloc,8G -p thread_pools=1 -p thread_pool_min=64 -p thread_pool_max=1500 \
        -p fetch_chunksize=1m -p default_ttl=2592000 -p timeout_idle=600 -p listen_depth=4096 -p vsl_mask="$varnish_quiet"
}
start_ats() {                                    # NAME ORIGIN
    local kind; kind=$(base_of "$1")
    fill_in "$1" "$2" ats.records.config records.config
    fill_in "$1" "$2" "$kind.remap.config" remap.config
    fill_in "$1" "$2" ats.runroot.yaml runroot.yaml
    fill_in "$1" "$2" ats.ip_allow.yaml ip_allow.yaml
    echo "$dir/$1/cache 8G" >"$dir/$1/storage.config"
    : >"$dir/$1/plugin.config"
    run_on "$1" "$(cores_of "$1")" "$dir/$1/log" traffic_server --run-root="$dir/$1/runroot.yaml"
}
start_haproxy() {                                # NAME ORIGIN
    fill_in "$1" "$2" haproxy.cfg
    run_on "$1" "$(cores_of "$1")" "$dir/$1/log" haproxy -db -f "$dir/$1/haproxy.cfg"
}
start() {                                        # NAME ORIGIN: with an empty cache
    [ "$1" = direct ] && return
    rm -rf "${dir:?}/$1"
    mkdir -p "$dir/$1/cache" "$dir/$1/tmp"
    chmod 700 "$dir/$1/cache"
    case $1 in *_tls) certify "$1" ;; esac
    case $(base_of "$1") in
        nginx* | static) start_nginx "$1" "$2" ;;
        ats | atss) start_ats "$1" "$2" ;;
        *) "start_$(base_of "$1")" "$1" "$2" ;;
    esac
    await "$1"
}
