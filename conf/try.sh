#!/bin/bash
# `make run`: a headpond on loopback to try, over a sample bucket (file://) or over UPSTREAM=URL with the AWS credentials of
# this shell. Prints how to point clients at it. Everything lives in $RUN_DIR; `make stop` ends the server.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
dir=${RUN_DIR:-/var/tmp/headpond-$(id -u)}
port=${PORT:-9000}
admin=${ADMIN_PORT:-9001}
user=$(id -un)
if [ "$(id -u)" -eq 0 ]; then                    # the server refuses to be root
    user=${SUDO_USER:-nobody}
    [ "$user" = root ] && user=nobody
fi
as() { if [ "$(id -un)" = "$user" ]; then "$@"; else setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups "$@"; fi; }

stop() {
    [ -f "$dir/pid" ] || { echo "no server was started in $dir"; return 0; }
    local pid; pid=$(cat "$dir/pid")
    if kill -TERM "$pid" 2>/dev/null; then
        timeout 70 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null || :
    fi
    rm -f "$dir/pid"
    echo "stopped"
}

make_sample() {                                  # a small "dataset": shards of a few MiB, an index, odd names
    local bucket=$dir/sample/demo
    mkdir -p "$bucket/shards" "$bucket/docs"
    for i in 0 1 2 3 4 5 6 7; do
        local shard; shard=$(printf '%s/shards/shard-%06d.tar' "$bucket" "$i")
        [ -f "$shard" ] || head -c $((6 * 1048576 + i * 70000)) /dev/urandom >"$shard"
    done
    echo "Read me through the cache." >"$bucket/docs/hello world.txt"
    : >"$bucket/docs/empty"
}

start() {
    if [ -f "$dir/pid" ] && kill -0 "$(cat "$dir/pid")" 2>/dev/null; then stop >/dev/null; fi
    mkdir -p "$dir/bin"
    chmod 755 "$dir"
    cp -f "$here/build/release/headpondd" "$here/build/release/headpond" "$dir/bin/"   # readable for $user wherever the tree is
    [ -s "$dir/keys" ] || { umask 077; printf '%s %s rw\n' "HP$(od -An -N9 -tx1 /dev/urandom | tr -d ' \n' | tr a-f A-F)" \
        "$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')" >"$dir/keys"; umask 022; }
    local upstream=${UPSTREAM:-}
    if [ -z "$upstream" ]; then make_sample; upstream=file://$dir/sample; fi
    mkdir -p "$dir/cache"; chmod 700 "$dir/cache"; chmod 600 "$dir/keys"
    [ "$(id -un)" = "$user" ] || chown -R "$user" "$dir/cache" "$dir/keys"
    read -r access secret _ <"$dir/keys"
    : >"$dir/log"; [ "$(id -un)" = "$user" ] || chown "$user" "$dir/log"
    as setsid "$dir/bin/headpondd" --upstream "$upstream" --cache "$dir/cache" --size 2GiB \
        --listen "127.0.0.1:$port" --set auth.keys_file="$dir/keys" --set cache.min_free=256MiB \
        --set admin.listen="unix:$dir/cache/admin.sock" --set admin.listen="127.0.0.1:$admin" \
        ${MEMORY:+--set cache.memory="$MEMORY"} </dev/null >>"$dir/log" 2>&1 &
    echo $! >"$dir/pid"
    if ! "$dir/bin/headpond" --server "http://127.0.0.1:$admin" -q ready --timeout 30s; then
        echo "headpond did not start:" >&2; tail -5 "$dir/log" >&2; rm -f "$dir/pid"; exit 1
    fi
    cat <<TEXT

headpond serves $upstream
  on http://127.0.0.1:$port, 2 GiB cache in $dir/cache, log in $dir/log
  status:  $dir/bin/headpond --server http://127.0.0.1:$admin status          stop:  make stop

Paste this into the shell of your clients:

  export AWS_ACCESS_KEY_ID=$access
  export AWS_SECRET_ACCESS_KEY=$secret
  export AWS_DEFAULT_REGION=us-east-1
  export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$port
  export AWS_ENDPOINT_URL=http://127.0.0.1:$port
  export S3_ENDPOINT_URL=http://127.0.0.1:$port
  unset AWS_SESSION_TOKEN AWS_PROFILE
  aws() { command aws --endpoint-url "\$AWS_ENDPOINT_URL" "\$@"; }    # older tools ignore the variables

TEXT
    if [ -z "${UPSTREAM:-}" ]; then cat <<TEXT
and try:

  aws s3 ls s3://demo/shards/
  aws s3 cp s3://demo/shards/shard-000000.tar /tmp/
  python3 -c 'import boto3, os; print(boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).get_object(Bucket="demo", Key="docs/hello world.txt")["Body"].read())'
  curl -s http://127.0.0.1:$port/demo/docs/hello%20world.txt

TEXT
    fi
}
"$1"
