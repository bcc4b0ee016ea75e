#!/bin/bash
# `make run`: a headpond on loopback to try, over a sample bucket (file://) or over UPSTREAM=URL with the AWS credentials of
# this shell. Prints how to point clients at it. Everything lives in $RUN_DIR; `make stop` ends the server.
# PORT and ADMIN_PORT choose other ports than 9000 and 9001, SIZE and MEMORY another cache than 2 GiB on disk and 1 GiB in RAM.
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

# The pid of our server if it runs. Numbers are used again, so the name is looked at, too.
running() {
    local pid
    pid=$(cat "$dir/pid" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = headpondd ] && echo "$pid"
}

stop() {
    local pid
    if ! pid=$(running); then
        rm -f "$dir/pid"
        echo "no server of $dir runs"
        return 0
    fi
    kill -TERM "$pid"
    timeout 70 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null || :
    rm -f "$dir/pid"
    echo "stopped"
}

make_dir() {                                     # /var/tmp is everyone's: ours must be ours
    mkdir -p "$dir"
    if [ ! -O "$dir" ] || [ -L "$dir" ]; then
        echo "$dir belongs to someone else; choose another one: make run RUN_DIR=..." >&2
        exit 1
    fi
    chmod 755 "$dir"
    mkdir -p "$dir/bin" "$dir/cache"
    chmod 700 "$dir/cache"
}

make_keys() {                                    # once; what clients were given stays valid
    [ -s "$dir/keys" ] && return
    (umask 077; printf 'HP%s %s rw\n' "$(od -An -N9 -tx1 /dev/urandom | tr -d ' \n' | tr a-f A-F)" \
        "$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')" >"$dir/keys")
}

make_sample() {                                  # a small "dataset": shards of a few MiB, an empty file, a blank in a name
    local bucket=$dir/sample/demo i shard
    mkdir -p "$bucket/shards" "$bucket/docs"
    for i in 0 1 2 3 4 5 6 7; do
        shard=$bucket/shards/shard-00000$i.tar
        [ -f "$shard" ] || head -c $((6 * 1048576 + i * 70000)) /dev/urandom >"$shard"
    done
    echo "Read me through the cache." >"$bucket/docs/hello world.txt"
    : >"$bucket/docs/empty"
    chmod -R a+rX "$dir/sample"
}

serve() {                                        # becomes the server: its pid is the one of this shell
    set -- setsid "$dir/bin/headpondd" --upstream "$1" --cache "$dir/cache" --size "${SIZE:-2GiB}" \
        --listen "127.0.0.1:$port" --set auth.keys_file="$dir/keys" --set cache.min_free=256MiB \
        --set admin.listen="unix:$dir/cache/admin.sock" --set admin.listen="127.0.0.1:$admin" \
        ${MEMORY:+--set cache.memory="$MEMORY"}
    [ "$(id -un)" = "$user" ] && exec "$@"
    HOME=$(getent passwd "$user" | cut -d: -f6)
    export HOME
    exec setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups "$@"
}

start() {
    local upstream=${UPSTREAM:-} access secret
    make_dir
    running >/dev/null && stop >/dev/null
    cp -f "$here/build/release/headpondd" "$here/build/release/headpond" "$dir/bin/"   # readable for $user wherever the tree is
    make_keys
    if [ -z "$upstream" ]; then make_sample; upstream=file://$dir/sample; fi
    : >"$dir/log"
    [ "$(id -un)" = "$user" ] || chown -R "$user" "$dir/cache" "$dir/keys"
    read -r access secret _ <"$dir/keys"
    serve "$upstream" </dev/null >>"$dir/log" 2>&1 &
    echo $! >"$dir/pid"
    if ! "$dir/bin/headpond" --server "http://127.0.0.1:$admin" -q ready --timeout 30s || ! running >/dev/null; then
        echo "headpond did not start:" >&2
        tail -5 "$dir/log" >&2
        stop >/dev/null
        exit 1
    fi
    cat <<TEXT

headpond serves $upstream
  on http://127.0.0.1:$port, ${SIZE:-2GiB} cache in $dir/cache, log in $dir/log
  status:  $dir/bin/headpond --server http://127.0.0.1:$admin status
  stop:    make stop

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

case ${1:-} in
start | stop) "$1" ;;
*) echo "usage: try.sh start|stop" >&2; exit 2 ;;
esac
