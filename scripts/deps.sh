#!/usr/bin/env bash
# Install what the tests ("test"), the checks ("lint") or the tests under other
# kernels ("kernels") need beyond Go, from Debian's packages. Does nothing where all of it is there.
set -euo pipefail

case "${1-}" in
test) packages=(frr bird2) ;; # the routers that interoperation is tested with
lint) packages=(clang-19 clang-format-19 libbpf-dev linux-libc-dev) ;;
kernels) packages=(qemu-system-x86 busybox-static cpio kmod xz-utils) ;;
*)
	echo "usage: $0 test|lint|kernels" >&2
	exit 2
	;;
esac

if ! command -v dpkg-query >/dev/null; then
	echo "deps: no Debian here: please see to what these packages hold: ${packages[*]}" >&2
	exit 0
fi

missing=()
for p in "${packages[@]}"; do
	[[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
done
((${#missing[@]})) || exit 0

if ((EUID)); then
	echo "deps: missing: ${missing[*]}; run this as root, or: sudo apt-get install ${missing[*]}" >&2
	exit 1
fi

# The routers' daemons are started by the tests, in namespaces; here they are
# not wanted.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -qq -o DPkg::Lock::Timeout=120)
"${apt[@]}" update
"${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >/dev/null
echo "deps: installed ${missing[*]}"
