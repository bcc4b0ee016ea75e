#!/bin/bash
# Operations as a person or a script meets them: start messages with cause and fix, exit codes, health, metrics, status, the
# command line. Every check is one line "ok ..." or "FAILED ..."; the last line is "admin: N passed, N failed".
set -u
cd "$(dirname "$0")/../.."
B=${B:-build/release}
work=$(mktemp -d /var/tmp/headpond-admin-XXXXXX)
server=""
passed=0; failed=0
trap '[ -n "$server" ] && kill -KILL $server 2>/dev/null; rm -rf "$work"' EXIT

check() {                            # check "what" command...: the command must succeed
    local what=$1; shift
    if "$@" >"$work/out" 2>&1 </dev/null; then passed=$((passed + 1)); else
        failed=$((failed + 1)); echo "FAILED $what"; sed 's/^/    /' "$work/out" | head -20
    fi
}
says() { grep -qE -- "$1" <<<"$2" || { echo "wanted: $1"; echo "got: $2"; return 1; }; }
exits() {                            # exits CODE PATTERN command...
    local code=$1 pattern=$2 out; shift 2
    out=$(timeout 20 "$@" 2>&1); local got=$?
    [ $got -eq "$code" ] || { echo "exit $got, wanted $code: $out"; return 1; }
    says "$pattern" "$out"
}
free_port() { python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])'; }

mkdir -p "$work/up/demo/dir" "$work/cache"; chmod 700 "$work/cache"
head -c 3000000 /dev/urandom >"$work/up/demo/big"; echo hello >"$work/up/demo/dir/hello"
port=$(free_port); admin=$(free_port)
root=(); [ "$(id -u)" -ne 0 ] || root=(--allow-root)
flags=(--upstream "file://$work/up" --cache "$work/cache" --size 256MiB --listen "127.0.0.1:$port" "${root[@]}"
       --set cache.min_free=64MiB --set cache.memory=64MiB --set cache.disk_timeout=60s --set "admin.listen=127.0.0.1:$admin"
       --set "admin.listen=unix:$work/admin.sock")
serve() { "$B/headpondd" "${flags[@]}" "$@" >"$work/log" 2>&1 </dev/null & server=$!; "$B/headpond" --server "http://127.0.0.1:$admin" -q ready --timeout 20s; }
stop() { kill -TERM $server; wait $server; local code=$?; server=""; return $code; }
hp() { "$B/headpond" --server "http://127.0.0.1:$admin" "$@"; }

# ---- configuration ----
cat >"$work/bad.toml" <<'TOML'
[upstream]
endpoint = "http://127.0.0.1:1"
[cache]
dirs = ["/nowhere"]
verfiy = "read"
ttl = "60 parsecs"
[sever]
workers = 2
TOML
check "a bad file: exit 2" exits 2 '^3 errors$' "$B/headpondd" check --config "$work/bad.toml"
check "a bad key has its place and a guess" exits 2 'bad\.toml:5:1: unknown key "verfiy" in \[cache\]; did you mean "verify"' "$B/headpondd" check --config "$work/bad.toml"
check "a bad section has its place and a guess" exits 2 'bad\.toml:7:[0-9]+: .*sever.*did you mean.*server' "$B/headpondd" check --config "$work/bad.toml"
check "no endpoint: says which key" exits 2 'upstream\.endpoint' "$B/headpondd" check
check "the shipped file is complete and valid" exits 0 'ok' env HEADPOND_UPSTREAM_ENDPOINT=http://127.0.0.1:1 HEADPOND_CACHE_DIRS=/x "$B/headpondd" check --config conf/headpond.toml
check "the shipped file is TOML" python3 -c 'import sys
try: import tomllib
except ImportError: sys.exit(0 if open("conf/headpond.toml").read() else 1)
tomllib.load(open("conf/headpond.toml","rb"))'
check "check --list names every option" exits 0 'cache\.negative_ttl' "$B/headpondd" check --list
check "check --json: a line of version 1 for each mistake" bash -c "'$B/headpondd' check --json --config '$work/bad.toml' | python3 -c 'import json,sys; a=[json.loads(l) for l in sys.stdin]; assert len(a) == 3 and all(x[\"v\"] == 1 and \"bad.toml:\" in json.dumps(x) for x in a), a'"
check "usage error: exit 2" exits 2 'usage' "$B/headpondd" --no-such-option
check "a later feature is refused in words" exits 2 'not in this version' "$B/headpondd" check "${flags[@]}" --set upstream.proxy=http://x:1

check "the standard file is not passed over when it may not be read" exits 2 'headpond\.toml: .*Permission denied' env -u HEADPOND_CONFIG strace -qq -o /dev/null -P /etc/headpond/headpond.toml -e inject=access,faccessat,faccessat2,openat:error=EACCES "$B/headpondd" check "${flags[@]}"

# What a start would refuse, in one look; a start that another try cannot help says so by its code.
wrong=(--upstream https://127.0.0.1:1 --set "upstream.region=no region" --set "admin.token_file=$work/wide")
printf '0123456789abcdef-secret\n' >"$work/wide"; chmod 644 "$work/wide"
check "check names a token file that a start would refuse" exits 2 'admin\.token_file: .*must not be wider than 0600' "$B/headpondd" check "${flags[@]}" "${wrong[@]}"
check "and a region that is none, both in one look" exits 2 '2 errors' "$B/headpondd" check "${flags[@]}" "${wrong[@]}"
cat >"$work/two.toml" <<'TOML'
[[upstream]]
name = "one"
endpoint = "https://127.0.0.1:1"
region = "no region"
[[upstream]]
name = "two"
endpoint = "https://127.0.0.1:2"
match = ["two-*"]
TOML
check "one upstream's mistake hides none of the second" exits 2 '2 errors' env "AWS_REGION=none either" HEADPOND_CACHE_DIRS=/x "$B/headpondd" check --config "$work/two.toml"
check "a profile that cannot be read, for credentials and region of both, is one" exits 2 '2 errors' env -u AWS_ACCESS_KEY_ID -u AWS_REGION -u AWS_DEFAULT_REGION "AWS_CONFIG_FILE=$work/up" HEADPOND_CACHE_DIRS=/x "$B/headpondd" check --config "$work/two.toml"
check "check names a ca_file that cannot be read" exits 2 'upstream\.ca_file "/nonexistent/ca"' "$B/headpondd" check "${flags[@]}" --upstream https://127.0.0.1:1 --set upstream.ca_file=/nonexistent/ca
check "check names a directory that is not there" exits 2 'directory "/nonexistent/up": No such file' "$B/headpondd" check "${flags[@]}" --upstream file:///nonexistent/up
check "check names an admin address that others reach" exits 2 'admin\.listen "0\.0\.0\.0:1" could be reached from elsewhere' "$B/headpondd" check "${flags[@]}" --set admin.listen=0.0.0.0:1
check "a start names all of them, and is not tried again" exits 2 '2 errors' "$B/headpondd" "${flags[@]}" "${wrong[@]}"
check "a keys file with a mistake: not tried again" exits 2 'keys:1' bash -c "echo nonsense >'$work/keys'; chmod 600 '$work/keys'; exec '$B/headpondd' \"\$@\"" - "${flags[@]}" --set "auth.keys_file=$work/keys"
check "a directory that may be mounted late: tried again" exits 1 'directory .*/nonexistent/up.*: No such file' "$B/headpondd" "${flags[@]}" --upstream file:///nonexistent/up
check "a token file that may be mounted late, too" exits 1 'admin\.token_file: /nonexistent/token' "$B/headpondd" "${flags[@]}" --set admin.token_file=/nonexistent/token
broken=(strace -qq -o /dev/null -P "$work/up" -e inject=access,faccessat,faccessat2,openat:error=)
for cause in ENOTCONN ESTALE EIO EHOSTDOWN; do
    check "a directory on a mount that is broken ($cause), too" exits 1 "directory .*$work/up" "${broken[@]/error=/error=$cause}" "$B/headpondd" "${flags[@]}"
done
check "a directory that may not be read: not tried again" exits 2 "directory .*$work/up.*Permission denied" "${broken[@]/error=/error=EACCES}" "$B/headpondd" "${flags[@]}"
check "a bundle of certificates that AWS_CA_BUNDLE names, and that may be mounted late" exits 1 'ca_file ."/nonexistent/bundle' env AWS_CA_BUNDLE=/nonexistent/bundle "$B/headpondd" "${flags[@]}" --upstream https://127.0.0.1:1
check "a profile whose file cannot be read now, and that only the region is looked for in" exits 1 "$work/up" env -u AWS_REGION -u AWS_DEFAULT_REGION AWS_ACCESS_KEY_ID=AKIAEXAMPLE AWS_SECRET_ACCESS_KEY=secret "AWS_CONFIG_FILE=$work/up" "$B/headpondd" "${flags[@]}" --upstream https://127.0.0.1:1

# ---- start messages ----
chmod 755 "$work/cache"
check "a cache directory open to others is refused" exits 1 '0700|chmod' "$B/headpondd" "${flags[@]}"
chmod 700 "$work/cache"
port_taken() {                       # the port is bound by another process while the server starts
    python3 - "$port" "$B/headpondd" "${flags[@]}" <<'PY'
import socket, subprocess, sys
s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen()
r = subprocess.run(sys.argv[2:], capture_output=True, text=True, timeout=15)
sys.exit(0 if r.returncode == 1 and f"127.0.0.1:{sys.argv[1]}" in r.stderr and "in use" in r.stderr else r.stderr)
PY
}
check "no port free: says which" port_taken
check "io_uring forbidden: names seccomp and the fix" exits 1 'io_uring is forbidden.*seccomp=.*io_uring_disabled=0' strace -f -qq -o /dev/null -e inject=io_uring_setup:error=EPERM "$B/headpondd" "${flags[@]}"
check "no io_uring: names the kernel" exits 1 'Linux 6\.1' strace -f -qq -o /dev/null -e inject=io_uring_setup:error=ENOSYS "$B/headpondd" "${flags[@]}"
# Without CAP_IPC_LOCK, which root has, RLIMIT_MEMLOCK counts. Kernels that do not count rings as locked memory start.
unprivileged=(); [ "$(id -u)" -ne 0 ] || unprivileged=(setpriv --bounding-set -ipc_lock)
poor=("${unprivileged[@]}" prlimit --memlock=98304)
no_memlock() {                       # KIB: cause and fix in the start message, or a kernel that does not count
    local out; out=$("${unprivileged[@]}" prlimit --memlock=$(($1 * 1024)) timeout -s INT 3 "$B/headpondd" "${flags[@]}" --set server.workers=1 2>&1)
    grep -q 'e=started' <<<"$out" || says "Cannot allocate memory: RLIMIT_MEMLOCK is $1 KiB.*224 KiB.*LimitMEMLOCK=infinity.*for the container" "$out"
}
check "no locked memory at all: cause and fix" no_memlock 0
check "locked memory for the probe only: cause and fix" no_memlock 64
check "locked memory for the ring but not for its buffers: cause and fix" no_memlock 216
check "no memory for io_uring: says how much is allowed and needed" exits 1 'Cannot allocate memory: RLIMIT_MEMLOCK is 96 KiB.*LimitMEMLOCK=infinity.*for the container' "${poor[@]}" strace -f -qq -o /dev/null -e inject=io_uring_setup:error=ENOMEM "$B/headpondd" "${flags[@]}"
check "no memory for its buffers: the same, not the kernel's age" exits 1 'io_uring_register: Cannot allocate memory: RLIMIT_MEMLOCK is ' strace -f -qq -o /dev/null -e inject=io_uring_register:error=ENOMEM "$B/headpondd" "${flags[@]}"
check "doctor tells it before the server does" exits 1 'RLIMIT_MEMLOCK is 96 KiB.*LimitMEMLOCK' "${poor[@]}" strace -f -qq -o /dev/null -e inject=io_uring_setup:error=ENOMEM "$B/headpond" --server "unix:$work/none.sock" doctor
[ "$(id -u)" -ne 0 ] || check "root is refused" exits 1 'root is refused.*--allow-root' "$B/headpondd" "${flags[@]/--allow-root/--set=log.level=info}"
check "starts" serve
check "a second server on the directory: at once, in words" exits 1 'another server|in use by|already' timeout 5 "$B/headpondd" "${flags[@]/$port/$(free_port)}" --set "admin.listen=127.0.0.1:$(free_port)"

# ---- health, metrics, status ----
url=http://127.0.0.1:$admin
check "GET through the cache" cmp "$work/up/demo/big" <(curl -sf "http://127.0.0.1:$port/demo/big")
check "/livez" curl -sf "$url/livez"
check "/readyz?verbose names the upstream" exits 0 'upstream' curl -sf "$url/readyz?verbose"
check "/-/ready on the S3 port" curl -sf "http://127.0.0.1:$port/-/ready"
check "/minio/health/live on the S3 port" curl -sf "http://127.0.0.1:$port/minio/health/live"
check "metrics pass promtool" bash -c "curl -sf $url/metrics | promtool check metrics"
check "fewer than 2,000 series" bash -c "[ \$(curl -sf $url/metrics | grep -vc '^#') -lt 2000 ]"
check "metrics count the request" bash -c "curl -sf $url/metrics | grep -q 'headpond_requests_total{op=\"get\",result=\"miss\",code=\"2xx\"} 1$'"
check "scrapes under load: whole pages, no counter goes back" python3 tests/admin/scrape.py "$port" "$admin" /demo/big /demo/dir/hello
check "/v1/status is JSON with the promised members" bash -c "curl -sf $url/v1/status | python3 -c 'import json,sys; s=json.load(sys.stdin); [s[k] for k in (\"v\",\"name\",\"version\",\"state\",\"uptime_s\",\"upstream\",\"cache\",\"last_5m\",\"disks\",\"jobs\",\"warnings\")]; assert s[\"state\"]==\"ready\" and s[\"v\"]==1'"
check "the status page is one small document" bash -c "curl -sf $url/ | python3 -c 'import sys; p=sys.stdin.read(); assert len(p)<20480 and \"GPUs waited\" in p and \"http\" not in p.split(\"<body\")[0].replace(\"http-equiv\",\"\")'"
policy=$(curl -sfD- -o /dev/null "$url/" | grep -i '^content-security-policy:')
check "whose policy lets nothing in from elsewhere" says "default-src 'none'; style-src 'nonce-[0-9a-f]{16,}'; script-src 'nonce-[0-9a-f]{16,}'; connect-src 'self'" "$policy"
check "and allows a page once" bash -c "[ \"\$(curl -sf $url/ | grep -o 'nonce=\"[0-9a-f]*' | sort -u)\" != \"\$(curl -sf $url/ | grep -o 'nonce=\"[0-9a-f]*' | sort -u)\" ]"
check "it names what is read most" bash -c "curl -sf $url/ | grep -q '<td>demo/'"
check "no plans yet" says '"plans":\[\]' "$(curl -s $url/v1/plans)"
check "changes over TCP are refused" bash -c "[ \$(curl -s -o /dev/null -w '%{http_code}' -X POST $url/v1/plans) -ge 400 ]"
check "a browser's Origin is refused" bash -c "[ \$(curl -s -o /dev/null -w '%{http_code}' -H 'Origin: http://evil.example' $url/v1/status) = 403 ]"
check "a foreign Host is refused" bash -c "[ \$(curl -s -o /dev/null -w '%{http_code}' -H 'Host: evil.example' $url/v1/status) = 403 ]"
change() { curl -s -o "$work/said" -w '%{http_code} ' "$@" "$url/v1/plans"; cat "$work/said"; }
check "without a token TCP is read-only, and says how else" says '^405 .*"read_only".*admin\.token_file' "$(change -X POST)"
check "the socket takes changes: this one is none" says '^400 .*bad_request' "$(curl -s -o "$work/said" -w '%{http_code} ' -X POST --unix-socket "$work/admin.sock" http://localhost/v1/plans; cat "$work/said")"
check "what can only be read says so" says '^405 .*use GET' "$(curl -s -o "$work/said" -w '%{http_code} ' -X POST --unix-socket "$work/admin.sock" http://localhost/v1/status; cat "$work/said")"
check "a body is bounded" says '^413' "$(head -c 70000 /dev/zero | curl -s -o "$work/said" -w '%{http_code} ' -X POST --data-binary @- --unix-socket "$work/admin.sock" http://localhost/v1/evict; cat "$work/said")"
check "a plan's body is bounded, too" says '^413 .*16 MiB' "$(head -c 17000000 /dev/zero | tr '\\0' ' ' | curl -s -o "$work/said" -w '%{http_code} ' -X POST --data-binary @- --unix-socket "$work/admin.sock" http://localhost/v1/plans; cat "$work/said")"
check "the socket is guarded by its mode" bash -c "[ \$(stat -c %a '$work/admin.sock') = 660 ]"

# ---- the command line ----
check "status" exits 0 '^headpond 0\.1\.0 on .*, ready, up ' "$B/headpond" --server "$url" status
for line in '  upstream  file://.*   answering, .*0 throttled/min' '  cache     [0-9.]+ of [0-9.]+ MiB \([0-9]+ %\), [0-9]+ objects?     disks 1 up, 0 fenced' \
            '  last 5 m  .*/s out, .*/s from upstream, hits [0-9.]+ % of bytes, p50 .* ms, p99 .* m?s' '  GPUs      waited [0-9.]+ % of client time for upstream'; do
    check "status reads as the manual shows it: $line" exits 0 "^$line\$" "$B/headpond" --server "$url" status
done
check "doctor, too" bash -c "'$B/headpond' --server $url doctor | grep -qE '^ok    kernel [0-9.]+.*, io_uring with SINGLE_ISSUER, DEFER_TASKRUN, buffer rings, multishot$'"
check "status names who was served" exits 0 'clients .*127\.0\.0\.1 \(curl\)' "$B/headpond" --server "$url" status
check "status --json" bash -c "'$B/headpond' --server $url --json status | python3 -c 'import json,sys; assert json.loads(sys.stdin.readline())[\"v\"]==1'"
check "status over the socket" exits 0 'ready' "$B/headpond" --server "unix:$work/admin.sock" status
check "env prints the three variables" bash -c "out=\$('$B/headpond' --server $url env 2>/dev/null) && grep -q 'AWS_ENDPOINT_URL_S3=http://127.0.0.1:$port' <<<\"\$out\" && grep -q 'S3_ENDPOINT_URL=' <<<\"\$out\""
check "what env prints can be pasted" bash -c "eval \"\$('$B/headpond' --server $url env 2>/dev/null)\" && curl -sf \"\$AWS_ENDPOINT_URL/demo/dir/hello\" | grep -q hello"
check "ready" hp ready --timeout 5s
check "doctor finds nothing fatal here" bash -c "'$B/headpond' --server $url doctor; [ \$? -eq 0 ]"
check "doctor: a directory needs no credentials" exits 0 'is a directory: no clock and no credentials' "$B/headpond" --server "$url" doctor
check "/v1/status tells the congestion control in effect" bash -c "curl -sf $url/v1/status | python3 -c 'import json,sys; assert json.load(sys.stdin)[\"congestion\"]'"
check "doctor names io_uring and the disks" exits 0 'io_uring' "$B/headpond" --server "$url" doctor
over_socket=("$B/headpond" --server "unix:$work/admin.sock")
the_disk=$(curl -sf "$url/v1/disks" | python3 -c 'import json,sys; print(json.load(sys.stdin)["disks"][0]["dir"])')
check "disk ls" exits 0 "^$the_disk .* up " "${over_socket[@]}" disk ls
check "disk fence over TCP without a token: exit 6" exits 6 'token' "$B/headpond" --server "$url" disk fence "$the_disk"
check "disk fence" exits 0 "^$the_disk .* fenced for .* errors" "${over_socket[@]}" disk fence "$the_disk"
check "a fenced disk: status says so and what to do" exits 0 'fenced, 0 errors: fenced by hand; headpond disk readmit' "${over_socket[@]}" status
check "a fenced disk: doctor says that it was by hand, and how it comes back" exits 0 'warn +[^ ]+ is fenced for .*: fenced by hand; headpond disk readmit DIR' "${over_socket[@]}" doctor
check "a fenced disk: objects come from upstream" cmp "$work/up/demo/big" <(curl -sf "http://127.0.0.1:$port/demo/big")
refused() { curl -sf "$url/metrics" | sed -n 's/^headpond_cache_refused_bytes_total{reason="full"} //p'; }
refused_before=$(refused); head -c 3000000 /dev/urandom >"$work/up/demo/unkept"
check "a fenced disk: what cannot be kept comes none the less" cmp "$work/up/demo/unkept" <(curl -sf "http://127.0.0.1:$port/demo/unkept")
check "and is counted as refused, once" test "$(refused)" -eq $((${refused_before:-0} + 3000000))
rm "$work/up/demo/unkept"
check "a fenced disk: disk_up is 0" grep -qx "headpond_disk_up{disk=\"$the_disk\"} 0" <(curl -sf "$url/metrics")
check "a fenced disk: verify names what it could not read, exits 3" exits 3 'done.*: 0 of 1 object, 0 damaged.* 1 failed: big DiskNotUp \(1 try\)' bash -c "'$B/headpond' --server 'unix:$work/admin.sock' verify s3://demo/big | tr '\n' ' '; exit \${PIPESTATUS[0]}"
check "disk fence of no disk: exit 4" exits 4 'no such cache directory; GET /v1/disks' "${over_socket[@]}" disk fence /nowhere
check "disk readmit" exits 0 "^$the_disk .* (probation|up) " "${over_socket[@]}" disk readmit "$the_disk"
back() { for _ in $(seq 150); do "${over_socket[@]}" disk ls | grep -q ' up ' && return; sleep 0.1; done; return 1; }
check "it comes back behind its probation" back
check "an unknown verb: exit 2" exits 2 '' "$B/headpond" --server "$url" no-such-verb
check "no server: exit 5 and what to do" exits 5 'headpond|server' "$B/headpond" --server "http://127.0.0.1:$(free_port)" --timeout 2s status
check "completion" bash -c "'$B/headpond' completion bash | bash -n"
check "SIGTERM: exit 0" stop
check "nothing listens any more: exit 5" exits 5 '' "$B/headpond" --server "$url" --timeout 2s status

# ---- pins ----
hps=("$B/headpond" --server "unix:$work/admin.sock")
check "starts for pins" serve
mkdir "$work/up/demo/later"; echo later >"$work/up/demo/later/new"
curl -sf -o /dev/null "http://127.0.0.1:$port/demo/dir/hello"
pinned() { curl -sf "$url/metrics" | grep -q "^headpond_cache_pinned_bytes $1\$"; }
until_pinned() { for _ in $(seq 200); do pinned "$1" && return; sleep 0.1; done; curl -s "$url/v1/pins"; return 1; }
curl -sf -o /dev/null "http://127.0.0.1:$port/demo/big"
check "pin: what is here is marked" bash -c "'$B/headpond' --server 'unix:$work/admin.sock' pin s3://demo/ | grep -qx 'pinned demo/'"
check "soon" until_pinned '[1-9][0-9]*'
check "another end for one of them" exits 0 'pinned demo/later until 20' "${hps[@]}" pin s3://demo/later --until 2d
check "pins shows both" exits 0 'demo/later .*until 20' "${hps[@]}" pins
check "pins as JSON" bash -c "'$B/headpond' --server $url --json pins | python3 -c 'import json,sys; p=json.loads(sys.stdin.readline()); assert [q[\"prefix\"] for q in p[\"pins\"]] == [\"demo/\", \"demo/later\"] and p[\"limit\"] > p[\"pinned\"] > 0'"
check "no pin over TCP without a token: exit 6" exits 6 'read-only' "$B/headpond" --server "$url" pin s3://demo
check "no pin without a bucket" exits 2 'names no bucket' "${hps[@]}" pin s3:///x
check "no pin in the past" exits 2 'no time in the future' "${hps[@]}" pin s3://demo --until 2020-01-01
check "no such pin: exit 4" exits 4 'no pin of just that prefix' "${hps[@]}" unpin s3://demo/nothing
check "a prefix that is none: 422" says '^422' "$(curl -s -o "$work/said" -w '%{http_code} ' -X PUT --unix-socket "$work/admin.sock" "http://localhost/v1/pins?prefix=%2Fx"; cat "$work/said")"
kill -KILL $server; wait $server 2>/dev/null; server=""
check "starts after kill -9" serve
check "pins are still there" exits 0 '^demo/ .*for good' "${hps[@]}" pins
check "and hold" until_pinned '[1-9][0-9]*'
check "unpin" exits 0 'unpinned demo/' "${hps[@]}" unpin s3://demo/
check "nothing is pinned any more" until_pinned 0
check "a pin ends by the clock" bash -c "'$B/headpond' --server 'unix:$work/admin.sock' -q pin demo/ --until 6s"
check "it held" until_pinned '[1-9][0-9]*'
check "and is over" until_pinned 0
check "one is left" exits 0 '^demo/later' "${hps[@]}" pins
check "ls: what is here and what the store has" bash -c "'$B/headpond' --server $url ls s3://demo/ | tr '\n' ' ' | grep -qx 'big dir/hello later/new '"
check "ls --cached" bash -c "[ \"\$('$B/headpond' --server $url ls --cached s3://demo | tr '\n' ' ')\" = 'big dir/hello ' ]"
check "ls --missing" bash -c "[ \$('$B/headpond' --server $url ls --missing s3://demo) = later/new ]"
check "ls -l tells the share" exits 0 '^100 %  - .* 2.86 MiB +big' "$B/headpond" --server "$url" ls -l s3://demo/b
check "ls of a bucket that is not there: exit 4" exits 4 'no such bucket' "$B/headpond" --server "$url" ls s3://nothing-here
check "du" exits 0 '2\.86 of 2\.86 MiB +1 objects  demo/' "$B/headpond" --server "$url" du s3://demo
check "du of a directory" exits 0 'of 6 B +1 objects  demo/later/' "$B/headpond" --server "$url" du s3://demo
check "/v1/objects of no bucket: 422" says '^422' "$(curl -s -o "$work/said" -w '%{http_code} ' "$url/v1/objects?prefix="; cat "$work/said")"
check "/v1/objects: what is missing is no question for it" says '^501 .*headpond ls --missing' "$(curl -s -o "$work/said" -w '%{http_code} ' "$url/v1/objects?prefix=demo&state=missing"; cat "$work/said")"
curl -sf -o /dev/null "http://127.0.0.1:$port/demo/big"
check "hist shows the hits" exits 0 '^hits: [1-9][0-9]*, p50' "$B/headpond" --server "$url" hist
check "top by prefix" exits 0 ' demo/$' "$B/headpond" --server "$url" top
check "top by client" exits 0 ' 127\.0\.0\.1$' "$B/headpond" --server "$url" top --by client
check "top by object" exits 0 'B/s .* demo/big$' "$B/headpond" --server "$url" top --by object
check "/v1/top by something else: 422" says '^422' "$(curl -s -o "$work/said" -w '%{http_code} ' "$url/v1/top?by=weight"; cat "$work/said")"
check "ends after pins" stop

# ---- the directory afterwards ----
check "starts again with its content" serve
check "a hit after the restart" bash -c "curl -sf -o /dev/null -D- http://127.0.0.1:$port/demo/big | grep -qi 'x-cache: hit'"

# ---- jobs ----
hps=("$B/headpond" --server "unix:$work/admin.sock")
damage() {                           # a byte of the object's second block, on disk, and of its third
    python3 - "$work/up/demo/big" "$work/cache/slab" <<'PY'
import sys
whole = open(sys.argv[1], "rb").read()
slab = open(sys.argv[2], "r+b")
for block in (1 << 20, 2 << 20):
    slab.seek(0)
    at = slab.read().find(whole[block:block + 4096])
    assert at >= 0, "the block is not on the disk"
    slab.seek(at + 100); byte = slab.read(1)[0]
    slab.seek(at + 100); slab.write(bytes([byte ^ 1])); slab.flush()
PY
}
check "verify finds nothing" exits 0 'done.*: 1 of 1 object, 2\.86 MiB, 0 damaged' "${hps[@]}" verify s3://demo/big
check "two damaged bytes on the disk" damage
check "verify finds both, names the key once, exits 3" exits 3 '2 damaged blocks dropped.* 1 failed: big ChecksumMismatch \(1 try\) ' bash -c "'$B/headpond' --server 'unix:$work/admin.sock' verify | tr '\n' ' '; exit \${PIPESTATUS[0]}"
check "and drops them: the next reader gets right bytes" cmp "$work/up/demo/big" <(curl -sf "http://127.0.0.1:$port/demo/big")
check "then nothing is wrong any more" exits 0 ' 0 damaged' "${hps[@]}" verify s3://demo
check "evict asks, and nobody is there: exit 2" exits 2 'dry-run.*--yes' "${hps[@]}" evict s3://demo/
check "evict --dry-run" exits 0 '^would evict [12] objects?, (1\.00|[12]\.86) MiB' "${hps[@]}" evict s3://demo/ --dry-run
check "evict over TCP without a token: exit 6" exits 6 'read-only' "$B/headpond" --server "$url" evict s3://demo/ --yes
check "evict --unread-for leaves what was read" exits 0 'done.*: 0 of 0 objects' "${hps[@]}" evict s3://demo/ --unread-for 1h --yes
check "evict" exits 0 'done.*: [12] of [12] objects?, (1\.00|[12]\.86) MiB' "${hps[@]}" evict s3://demo/ --yes
check "what was evicted is a miss" bash -c "curl -sf -o /dev/null -D- http://127.0.0.1:$port/demo/big | grep -qi 'x-cache: miss'"
check "revalidate" exits 0 'done.*0 had changed' "${hps[@]}" revalidate s3://demo/
check "an object that went upstream is dropped" bash -c "mv '$work/up/demo/big' '$work/aside' && '$B/headpond' --server 'unix:$work/admin.sock' revalidate s3://demo/ | grep -q '1 had changed'; mv '$work/aside' '$work/up/demo/big'"
check "jobs" exits 0 'verify +done' "${hps[@]}" jobs
check "job show" exits 0 'j1 verify demo/big done' "${hps[@]}" job show j1
check "no such job: exit 4" exits 4 'headpond jobs' "${hps[@]}" job show j99
check "the jobs are in the metrics" bash -c "curl -sf $url/metrics | grep -q 'headpond_jobs{state=\"done\"} [1-9]'"
many() { mkdir -p "$work/up/many"; for i in $(seq 60); do head -c 2500000 /dev/urandom >"$work/up/many/$i"; curl -sf -o /dev/null "http://127.0.0.1:$port/many/$i" || return 1; done; }
check "150 MB more" many
killed() {                           # kill -9 in a job: it goes on, under its number, to the end
    local id; id=$("${hps[@]}" --json verify --detach | python3 -c 'import json,sys; print(json.load(sys.stdin)["id"])') || return 1
    kill -KILL $server; wait $server 2>/dev/null; serve || return 1
    exits 0 "^$id verify everything done.*, 0 damaged" "${hps[@]}" job wait "$id" --timeout 20s
}
check "kill -9 in a job: it goes on" killed
check "ends again" stop
printf 'X' | dd of="$work/cache/headpond.id" bs=1 seek=20 conv=notrunc status=none
check "starts with a damaged header" serve
check "and says that it starts empty" grep -q 'index moved aside.*cause=header' "$work/log"
check "and ends" stop
printf '0123456789abcdef-secret\n' >"$work/token"; chmod 644 "$work/token"
check "a token file open to others: says which and how" exits 2 'admin.token_file: .*token.*0600' "$B/headpondd" "${flags[@]}" --set "admin.token_file=$work/token"
chmod 600 "$work/token"; echo short >"$work/token2"; chmod 600 "$work/token2"
check "a token that can be guessed: says what makes one" exits 2 'openssl rand' "$B/headpondd" "${flags[@]}" --set "admin.token_file=$work/token2"
check "starts with a token" serve --set "admin.token_file=$work/token"
bearer="Authorization: Bearer 0123456789abcdef-secret"
check "a change without the token: 401 and what to say" says '^401 .*unauthorized.*Bearer' "$(change -X POST)"
check "a change with another one: 403" says '^403 ' "$(change -X POST -H "${bearer}x")"
check "with the token it is looked at" says '^400 .*Plans' "$(change -X POST -H "$bearer")"
check "config reload over TCP without the token: exit 6" exits 6 'Bearer' "$B/headpond" --server "$url" config reload
check "and with it" exits 0 '^reloaded$' "$B/headpond" --server "$url" --token-file "$work/token" config reload
check "but not for a browser's page" says '^403 ' "$(change -X POST -H "$bearer" -H 'Origin: http://evil.example')"
check "reading needs no token" curl -sf "$url/v1/status"
check "the token is in no log" bash -c "! grep -q 0123456789abcdef '$work/log'"
check "and ends" stop
open=$(free_port)
check "starts with a congestion control that the kernel refuses" serve --set server.congestion=nosuch --set "admin.metrics_listen=127.0.0.1:$open"
curl -sf -o /dev/null "http://127.0.0.1:$port/demo/dir/hello"
check "the status page on admin.metrics_listen" bash -c "curl -sf http://127.0.0.1:$open/ | grep -q 'GPUs waited'"
curl -s -o "$work/said" -H 'Origin: http://x/demo/key' "$url/"   # its refusal is a line of the log that names what it likes
check "lines of the log are in status" bash -c "curl -sf $url/v1/status | grep -q demo/key"
check "on admin.metrics_listen it has their number only" bash -c "curl -sf http://127.0.0.1:$open/v1/status >'$work/said' && grep -q 'last lines of warnings' '$work/said' && ! grep -q demo/key '$work/said'"
check "names nothing of what is read" bash -c "! curl -sf http://127.0.0.1:$open/ | grep -q 'demo/'"
check "nor does another path there" bash -c "for p in v1/top v1/jobs v1/objects?prefix=demo v1/config; do [ \$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:$open/\$p) = 404 ] || exit 1; done"
check "doctor tells that it was refused" exits 0 'the kernel refused server\.congestion = "nosuch": load its module' "$B/headpond" --server "$url" doctor
check "and ends, too" stop

# ---- reload and drain from the command line ----
cat >"$work/live.toml" <<TOML
[upstream]
endpoint = "file://$work/up"
[cache]
dirs = ["$work/cache"]
size = "256MiB"
min_free = "64MiB"
memory = "64MiB"
ttl = "60s"
[server]
listen = ["127.0.0.1:$port"]
[admin]
listen = ["127.0.0.1:$admin", "unix:$work/admin.sock"]
TOML
flags=(--config "$work/live.toml" "${root[@]}")
hps=("$B/headpond" --server "unix:$work/admin.sock")
shows_ttl() { "${hps[@]}" config show | grep -qx "ttl = \"$1\""; }
check "starts with a file" serve
check "config reload: what is unchanged" exits 0 '^reloaded$' "${hps[@]}" config reload
sed -i 's/^ttl = .*/ttl = "5s"/' "$work/live.toml"
check "config reload: another ttl" exits 0 '^reloaded$' "${hps[@]}" config reload
check "is in force when it returns" shows_ttl 5s
as_json() {                          # each line an object of version 1, and there is one
    local out; out=$("${hps[@]}" --json "$@" 2>"$work/err") || { echo "exit $?"; cat "$work/err"; return 1; }
    python3 -c 'import json, sys
lines = [json.loads(line) for line in sys.argv[1].splitlines()]
sys.exit(0 if lines and all(type(o) is dict and o["v"] == 1 for o in lines) else sys.argv[1])' "$out"
}
curl -sf -o /dev/null "http://127.0.0.1:$port/demo/big"
for verb in status "status --sizing" env doctor ready "disk ls" "ls s3://demo/" "ls -l s3://demo/" "ls --cached s3://demo/" "du s3://demo/" \
            top "top --by client" "top --by object" hist "pin s3://demo/" pins "unpin s3://demo/" "config show" "config reload" version verify \
            "evict s3://demo/ --dry-run" "evict s3://demo/ --yes" "revalidate s3://demo/" jobs "plan show" "prewarm s3://demo/ --dry-run" "prewarm s3://demo/"; do
    check "$verb --json: lines of version 1" as_json $verb
done
check "status --watch tells again and again" bash -c "[ \$('$B/headpond' --server 'unix:$work/admin.sock' status --watch=100ms | grep -m3 -c '^headpond .*, ready') = 3 ]"
check "status --watch --json: a line for each look" bash -c "[ \$('$B/headpond' --server 'unix:$work/admin.sock' --json status --watch=100ms | grep -m3 -c '^{\"v\":1,') = 3 ]"
sed -i 's/^size = .*/size = "300MiB"/' "$work/live.toml"
check "config reload names what waits for a restart, and how" exits 0 'until a restart: cache\.size$' "${hps[@]}" config reload
check "the same as JSON" bash -c "'$B/headpond' --server 'unix:$work/admin.sock' --json config reload | python3 -c 'import json,sys; a=json.loads(sys.stdin.readline()); assert a == {\"v\": 1, \"ok\": True, \"restart_needed\": [\"cache.size\"]}, a'"
sed -i -e 's/^ttl = .*/ttl = "soon"/' -e 's/^\[server\]/[sever]/' "$work/live.toml"
check "config reload of a bad file: exit 2, each mistake with its place" exits 2 'live\.toml:8:7: cache\.ttl "soon" is no time.*live\.toml:9:1: unknown section "sever".*2 errors, nothing has changed' bash -c "'$B/headpond' --server 'unix:$work/admin.sock' config reload 2>&1 | tr '\n' ' '; exit \${PIPESTATUS[0]}"
check "the same as JSON, a line each" bash -c "'$B/headpond' --server 'unix:$work/admin.sock' --json config reload 2>/dev/null | python3 -c 'import json,sys; a=[json.loads(l) for l in sys.stdin]; assert len(a) == 2 and all(x[\"v\"] == 1 and \"live.toml:\" in x[\"error\"] for x in a), a'"
check "as headpondd check says it" exits 2 'live\.toml:8:7: cache\.ttl "soon" is no time' "$B/headpondd" check --config "$work/live.toml"
check "and nothing has changed" shows_ttl 5s
check "config reload without a token over TCP: exit 6" exits 6 'read-only' "$B/headpond" --server "$url" config reload
check "drain over TCP without a token: exit 6" exits 6 'read-only' "$B/headpond" --server "$url" drain
check "drain: says what will be" exits 0 '^draining: .* in 1m 00s at most' "${hps[@]}" drain
drained() { wait $server; local code=$?; server=""; [ $code -eq 0 ] || return 1; grep -q 'stopping.*signal=15' "$work/log"; }
check "and the server ends well" drained
check "then nobody answers: exit 5" exits 5 'Is headpondd running' "${hps[@]}" drain

# ---- a store with a network, several servers, root's directories ----
operator() { timeout 300 /usr/bin/python3 -B tests/admin/operator.py "$1"; }
check "bench: three lines, cold is cold; what cannot be measured is told" operator bench
check "bench over TLS, signed" operator bench-signed
check "prewarm --force: what fits, in its order; the pinned stays" operator force
check "prewarm --via a balancer: each object once, at its home" operator via
check "setup below DESTDIR" operator setup

# ---- schedules: the clock is the machine's, and the time zone puts its minutes where they are wanted ----
zone() { python3 -c 'import sys, time
want = sum(int(part) * unit for part, unit in zip(sys.argv[1].split(":"), (3600, 60, 1)))
off = int(time.time() - want) % 86400           # what is added to local time to get UTC
print("HERE%d:%02d:%02d" % (off // 3600, off // 60 % 60, off % 60))' "$1"; }
at() { TZ=$(zone "$1") serve; }                 # a server that starts at that time of the day
sed -i -e 's/^ttl = .*/ttl = "60s"/' -e 's/^\[sever]/[server]/' -e 's/^size = .*/size = "256MiB"/' "$work/live.toml"
cp "$work/live.toml" "$work/plain.toml"
cat >>"$work/live.toml" <<TOML
[[bucket]]
match = "demo"
quota = "64MiB"
[[schedule]]
when = "08:00-20:00"
"cache.ttl" = "7s"
"prefetch.bandwidth" = "200MB"
[[schedule]]
when = "20:00-08:00"
match = "demo"
quota = "128MiB"
TOML
soon() { for _ in $(seq 300); do "$@" && return; sleep 0.1; done; return 1; }
quota_is() { "${hps[@]}" --json config show | python3 -c 'import json,sys; c = json.load(sys.stdin); sys.exit(c["bucket"][0]["quota"] != sys.argv[1])' "$1"; }
check "headpondd check takes schedules" exits 0 '^ok$' "$B/headpondd" check --config "$work/live.toml"
check "starts by day" at 12:00:00
check "what the day sets is in force from the first request on" shows_ttl 7s
check "what the night sets is not" quota_is 64MiB
check "the log tells which" grep -q 'schedule.*in_force=08:00-20:00' "$work/log"
check "status tells which, and until when" exits 0 '^  schedule  08:00-20:00 in force, next change in 7h 5' "${hps[@]}" status
check "the same as JSON" bash -c "'$B/headpond' --server 'unix:$work/admin.sock' --json status | python3 -c 'import json,sys; s=json.loads(sys.stdin.readline()); assert [x[\"in_force\"] for x in s[\"schedules\"]] == [True, False] and 25000 < s[\"schedule_changes_s\"] <= 28800, s'"
check "config show prints the sections, for a file" bash -c "'$B/headpond' --server 'unix:$work/admin.sock' config show >'$work/shown.toml' && grep -qx '\"cache.ttl\" = \"7s\"' '$work/shown.toml' && '$B/headpondd' check --config '$work/shown.toml'"
sed -i 's/"cache.ttl" = .*/"cache.ttl" = "9s"/' "$work/live.toml"
check "a reload changes what is in force" exits 0 '^reloaded$' "${hps[@]}" config reload
check "at once" shows_ttl 9s
sed -i 's/when = "08:00-20:00"/when = "all day"/' "$work/live.toml"
check "a schedule that is wrong changes nothing and has its place" exits 2 'live\.toml:17:8: schedule\.when "all day" is no time of the week; write "Mon-Fri 08:00-20:00"' "${hps[@]}" config reload
check "what was in force still is" shows_ttl 9s
sed -i 's/when = "all day"/when = "08:00-20:00"/' "$work/live.toml"
check "ends by day" stop
check "starts a moment before the night" at 19:59:57
check "the night begins with its minute" soon quota_is 128MiB
check "and the day is over" shows_ttl 1m
check "without a reload" bash -c "curl -sf $url/metrics | grep -qx 'headpond_config_reloads_total{result=\"applied\"} 0'"
cp "$work/plain.toml" "$work/live.toml"
check "a file without schedules ends them" exits 0 '^reloaded$' "${hps[@]}" config reload
check "status says no more of them" bash -c "! '$B/headpond' --server 'unix:$work/admin.sock' status | grep schedule"
check "and ends by night" stop

echo "admin: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
