#!/usr/bin/env bash
# Run a command in a clone of HEAD on a bare Debian, to check that scripts/deps.sh
# installs everything it needs:
#
#   scripts/test-bare.sh [COMMAND...]     default: the README's make demo, then make test
#
# The bare machine is a new root file system of this machine's Debian release with the
# packages of every Debian, make, and this machine's Go. Its Go caches are empty. Packages
# and Go modules come from the sources configured on this machine. It has its own mounts
# and processes, but this machine's kernel and network; everything is removed at the end,
# even after a failure or an interrupt.
set -euo pipefail
script=$(readlink -f "$0")
cd "$(dirname "$script")/.."

# bootstrap ROOT: installs the packages of every Debian, and make.
bootstrap() {
	local release mirror proxy=
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
		awk -v r="$release" '$1 == r && $2 == "main" {print $3; exit}')
	[[ $mirror ]] || { echo "test-bare: no apt source has $release main" >&2; return 1; }
	eval "$(apt-config shell proxy Acquire::http::Proxy)"
	echo "test-bare: installing Debian $release"
	http_proxy=${proxy:-${http_proxy-}} debootstrap --variant=minbase --include=make "$release" "$1" "$mirror" >"$1.log" ||
		{ tail -20 "$1.log" >&2; return 1; }
}

# configure ROOT: makes apt, names and certificates work as on this machine.
configure() {
	local certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
	rm -rf "$1"/etc/apt
	cp -a /etc/apt "$1"/etc/
	cp -an /usr/share/keyrings/. "$1"/usr/share/keyrings/
	cp -L /etc/resolv.conf /etc/hosts "$1"/etc/
	[[ ! -e $certificates ]] || cp -L "$certificates" "$1"/etc/host.crt
}

# mounts ROOT: makes it a mount point with the kernel's file systems, its own BPF file
# system, and Go.
mounts() {
	local fs go
	mount --bind "$1" "$1"
	mount -t proc proc "$1"/proc
	for fs in sys dev; do
		mount --rbind /$fs "$1"/$fs
		mount --make-rslave "$1"/$fs
	done
	mount -t bpf bpf "$1"/sys/fs/bpf
	go=$(go env GOROOT)
	mkdir -p "$1"/usr/local/go
	mount --bind "$go" "$1"/usr/local/go
	mount -o remount,bind,ro "$1"/usr/local/go
}

# environment: prints what the command inherits from this machine.
environment() {
	local name
	printf '%s\n' HOME=/root PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		"TERM=${TERM-dumb}" SSL_CERT_FILE=/etc/host.crt
	for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
		[[ -z ${!name-} ]] || echo "$name=${!name}"
	done
	for name in GOPROXY GOSUMDB GONOSUMDB GONOPROXY GOPRIVATE GOINSECURE GOFLAGS GOTOOLCHAIN; do
		echo "$name=$(go env "$name")"
	done
}

# inside ROOT COMMAND...: does everything, in namespaces that end with it.
inside() {
	local root=$1 env
	shift
	bootstrap "$root"
	configure "$root"
	mounts "$root"
	git clone -q --depth 1 "file://$PWD" "$root"/src
	mapfile -t env < <(environment)
	echo "test-bare: $*"
	cd "$root"
	pivot_root . . # what remains below is this machine's root
	umount -l .
	cd /src
	env -i "${env[@]}" "$@" # not by exec: the first process has to reap orphans
}

if [[ ${1-} == --inside ]]; then
	shift
	inside "$@"
	exit
fi

((EUID == 0)) || { echo "test-bare: this needs root" >&2; exit 1; }
scripts/deps.sh bare
(($#)) || set -- bash -euc 'make demo; make test'
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
set -m # a separate process group, to be interrupted as a whole
unshare --mount --pid --fork --kill-child --mount-proc "$script" --inside "$work/root" "$@" </dev/null &
child=$!
trap 'kill -INT -- "-$child" 2>/dev/null || true' INT TERM HUP
status=0
while wait "$child" || status=$?; do
	kill -0 "$child" 2>/dev/null || break
	timeout 20 tail --pid="$child" -f /dev/null || kill -KILL "$child" # the namespaces end with it
done
exit "$status"
