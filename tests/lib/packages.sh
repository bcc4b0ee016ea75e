#!/bin/bash
# Installs those of the named Debian packages that are missing; silent when none is. Uses sudo when not root.
set -eu
missing=()
for p in "$@"; do
    dpkg-query -W -f='${Status}\n' "$p" 2>/dev/null | grep -q '^install ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
root=(); [ "$(id -u)" -eq 0 ] || root=(sudo)
echo "installing: ${missing[*]}"
# A fresh machine may be updating itself, and a mirror may miss a beat.
patient=(-o DPkg::Lock::Timeout=600 -o Acquire::Retries=5)
"${root[@]}" apt-get update -qq "${patient[@]}"
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${patient[@]}" --no-install-recommends "${missing[@]}" >/dev/null || {
    echo "could not install: ${missing[*]}; run: apt-get install ${missing[*]}" >&2
    exit 1
}
