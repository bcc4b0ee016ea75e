#!/bin/bash
# A stranger's first ten minutes: on a bare Debian 12 (made here by debootstrap, with git, make, sudo and ca-certificates and nothing
# else), a normal user clones this repository, says `make run`, pastes what it prints, and reads through the cache with the tools of
# the README. "bare.sh check" then says `make check`, too.
#
# Needs root (it asks sudo), debootstrap, unshare, and the package mirror of this machine's /etc/apt. The tree stands in a temporary
# folder below $BARE_DIR (default /var/tmp); mounts and processes live in namespaces of their own and end with this script.
# What is committed is tested: HEAD of this repository. The last line is "bare: N passed, N failed".
set -u
me=$(readlink -f "$0")
repository=$(dirname "$(dirname "$(dirname "$me")")")
[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=BARE_DIR,http_proxy,https_proxy,no_proxy "$me" "$@"

# ---- outside: a folder, a namespace, and the broom ----
if [ "${1:-}" != --inside ]; then
    for tool in debootstrap unshare git; do
        command -v "$tool" >/dev/null || { echo "bare.sh needs $tool: apt-get install debootstrap util-linux git" >&2; exit 1; }
    done
    root=$(mktemp -d "${BARE_DIR:-/var/tmp}/headpond-bare-XXXXXX")
    trap 'rm -rf --one-file-system "$root"' EXIT
    unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$me" --inside "$root" "${1:-}"
    exit $?
fi

# ---- inside: the machine ----
root=$2 what=${3:-}
passed=0; failed=0
log=$(mktemp -p "$root")
chmod 755 "$root"

# note NAME COMMAND...: one check; its output is shown if it fails.
note() {
    local name=$1 began=$SECONDS; shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1)); echo "ok      $name ($((SECONDS - began)) s)"
    else
        failed=$((failed + 1)); echo "FAILED  $name"; tail -40 "$log" | sed 's/^/        /'
    fi
}
finish() {
    echo "bare: $passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}
# must ...: as note, but nothing makes sense without it.
must() { note "$@"; [ "$failed" -eq 0 ] || finish; }

mirror() { # the first Debian archive that this machine's apt uses
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        grep -E '^(URIs:|deb )' | grep -oE '(https?|file)://[^ ]+/debian/?( |$)' | head -1 | tr -d ' '
}

make_tree() {
    local tree=$root/tree from
    from=$(mirror)
    debootstrap --variant=minbase --include=git,make,sudo,ca-certificates bookworm "$tree" "${from:-http://deb.debian.org/debian}" &&
        rm -f "$tree/etc/apt/sources.list" || return 1
    # The mirror's settings, of Debian's own archives only: others' keys are not in the tree.
    local f
    for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        [ -f "$f" ] && grep -qE '/debian(-security)?/?( |$)' "$f" && install -Dm644 "$f" "$tree$f"
    done
    for f in /etc/apt/apt.conf /etc/apt/apt.conf.d/*; do
        [ -f "$f" ] && grep -q '^Acquire::' "$f" && install -Dm644 "$f" "$tree$f"
    done
    for f in /etc/apt/auth.conf.d/*; do
        [ -f "$f" ] && install -Dm600 "$f" "$tree$f"
    done
    # A machine behind a proxy of its own trusts its own authorities; so must the tree, pip included.
    install -Dm644 -t "$tree/usr/local/share/ca-certificates" /usr/local/share/ca-certificates/*.crt 2>/dev/null &&
        chroot "$tree" update-ca-certificates >/dev/null 2>&1
    [ -f /etc/pip.conf ] && install -Dm644 /etc/pip.conf "$tree/etc/pip.conf"
    cp -L /etc/resolv.conf /etc/hosts "$tree/etc/"
    mount -t proc proc "$tree/proc" && mount --rbind -o ro /sys "$tree/sys" &&
        mkdir -p "$tree/dev/pts" && mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$tree/dev/pts"
}

make_user() {
    chroot "$root/tree" useradd --create-home --shell /bin/bash ada &&
        echo 'ada ALL=(ALL) NOPASSWD: ALL' >"$root/tree/etc/sudoers.d/ada" &&
        chmod 440 "$root/tree/etc/sudoers.d/ada" &&
        git clone --quiet --bare "$repository" "$root/tree/srv/headpond.git" &&
        git -C "$root/tree/srv/headpond.git" update-ref --no-deref HEAD "$(git -C "$repository" rev-parse HEAD)" &&
        chroot "$root/tree" chown -R ada: /srv/headpond.git
}

# ada COMMAND: as that user, in a login shell, in the clone if there is one.
ada() {
    local settings=() name
    for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PORT ADMIN_PORT; do
        [ -n "${!name:-}" ] && settings+=("export $name='${!name}';")
    done
    timeout -k 10 "${limit:-300}" chroot "$root/tree" su - ada -c "${settings[*]:-} cd headpond 2>/dev/null; $1"
}
# pasted COMMAND: the same after pasting what `make run` printed.
pasted() { ada "shopt -s expand_aliases; . ~/pasted; $1"; }

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
choose_ports() { # a fresh machine has 9000 and 9001 free; this one may not
    PORT=9000
    while taken "$PORT" || taken $((PORT + 1)); do PORT=$((PORT + 10)); done
    ADMIN_PORT=$((PORT + 1))
    [ "$PORT" -eq 9000 ] && unset PORT ADMIN_PORT
}

make_run() {
    limit=1200 ada "make run >~/printed" || return 1
    sed -n '/^Paste this/,/^and try/s/^  //p' "$root/tree/home/ada/printed" >"$root/tree/home/ada/pasted"
    grep -q '^export AWS_ACCESS_KEY_ID=' "$root/tree/home/ada/pasted"
}
# Runs the command that `make run` printed and that begins so.
as_printed() { pasted "$(sed -n '/^and try/,$s/^  //p' "$root/tree/home/ada/printed" | grep -m1 "^$1")"; }
sample=/var/tmp/headpond-1000/sample/demo

lists() { as_printed 'aws s3 ls' | tee /dev/stderr | grep -c 'shard-00000[0-7].tar$' | grep -qx 8; }
copies() { as_printed 'aws s3 cp' && ada "cmp $sample/shards/shard-000000.tar /tmp/shard-000000.tar"; }
reads_boto() { as_printed python3 | tee /dev/stderr | grep -q 'Read me through the cache'; }
reads_curl() { as_printed 'curl' | tee /dev/stderr | grep -qx 'Read me through the cache.'; }
hits() { pasted 'curl -s -o /tmp/again -D - $AWS_ENDPOINT_URL/demo/shards/shard-000000.tar' | tee /dev/stderr | grep -qi '^x-cache: hit' &&
    ada "cmp $sample/shards/shard-000000.tar /tmp/again"; }
tells() { ada "$(sed -n 's/^  status:  //p' "$root/tree/home/ada/printed")" | tee /dev/stderr | grep -q ready; }
runs_again() { make_run && hits; }
stops() { ada "make stop" | tee /dev/stderr | grep -qx stopped && ! taken "${PORT:-9000}" && ! ada "pgrep headpondd"; }
# The server in a container's sandbox; also that its index child may run there: it is started twice.
boxed() {
    local port=${PORT:-9000} i
    for i in 1 2; do
        ada "mkdir -p -m 700 ~/boxed
            python3 tests/bare/seccomp.py conf/seccomp.json build/release/headpondd --upstream file://${sample%/demo} --cache ~/boxed \
                --size 1GiB --listen 127.0.0.1:$port --set cache.memory=64MiB --set admin.listen=unix:\$HOME/boxed/admin.sock &
            pid=\$!
            build/release/headpond --server unix:\$HOME/boxed/admin.sock -q ready --timeout 30s &&
                curl -sf -D ~/head -o ~/body http://127.0.0.1:$port/demo/shards/shard-000001.tar &&
                cmp ~/body $sample/shards/shard-000001.tar && kill \$pid && wait \$pid" || return 1
    done
    grep -qi '^x-cache: hit' "$root/tree/home/ada/head"
}
checks() { limit=3600 ada "make check" | tee /dev/stderr | tail -1 | grep -qE '^[1-9][0-9]* passed, 0 failed$'; }

must "a bare Debian 12" make_tree
must "a normal user with sudo, and the repository" make_user
choose_ports
must "git clone" ada "git clone --quiet file:///srv/headpond.git headpond && cd headpond && git log -1 --oneline"
must "make run" make_run
note "clients: sudo apt install awscli python3-boto3 curl" \
    ada "sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends awscli python3-boto3 curl procps"
note "aws s3 ls" lists
note "aws s3 cp" copies
note "boto3" reads_boto
note "curl without a signature" reads_curl
note "the second read is a hit" hits
note "headpond status" tells
note "make run again: what was cached is still there" runs_again
note "make stop" stops
note "under conf/seccomp.json, twice" boxed
[ "$what" = check ] && note "make check" checks
finish
