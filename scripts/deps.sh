#!/usr/bin/env bash
# Install what is needed in addition to Go, from Debian packages: for the tests ("test"),
# the tests that need IPVS ("guest") or other BGP implementations ("interop"), the checks
# ("lint"), the tests under other kernels ("kernels"), a complete Kubernetes cluster
# ("cluster"), the comparison of the simulator ("sim"), the tests of web pages
# ("page"), the web pods and the load generator of bench web ("web") or the documentation
# site ("docs").
# Does nothing if everything is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

guest=(gcc libc6-dev iproute2 iptables kmod) # a compiler for the library that is preloaded in the guest
daemons=(frr bird2 gobgpd exabgp)            # the BGP implementations that interoperation is tested with
plugins=containernetworking-plugins
case "${1-}" in
test) packages=(ca-certificates "${daemons[@]}" nftables openvswitch-switch tmux "$plugins" "${guest[@]}") ;;
interop) packages=("${daemons[@]}" iproute2) ;;
guest) packages=("${guest[@]}") ;;
lint) packages=(ca-certificates git clang-19 clang-format-19 llvm-19 libbpf-dev linux-libc-dev) ;;
kernels) packages=(qemu-system-x86 busybox-static cpio kmod xz-utils) ;;
cluster) packages=(containerd runc "$plugins" iproute2 nftables kmod procps gcc libc6-dev) ;;
sim) packages=(ns2) ;;
page) packages=(chromium) ;;
web) packages=(nginx wrk) ;;
bare) packages=(debootstrap git) ;;
docs) packages=(ca-certificates python3 python3-venv) ;;
*)
	echo "usage: $0 test|interop|guest|lint|kernels|cluster|sim|page|web|bare|docs" >&2
	exit 2
	;;
esac

if ! command -v dpkg-query >/dev/null; then
	echo "deps: not a Debian system: install the contents of these packages: ${packages[*]}" >&2
	exit 0
fi

missing=()
for p in "${packages[@]}"; do
	[[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
done
apt=(apt-get -qq -o DPkg::Lock::Timeout=120)

# kernel: unpacks the guest's kernel and its modules into out/uml, where lab/uml looks
# for it. It is not installed, so that it does not affect this machine.
kernel() {
	[[ -e out/uml ]] && return
	local work
	work=$(mktemp -d)
	chmod 777 "$work" # apt downloads as its own user
	(
		trap 'rm -rf "$work"' EXIT
		cd "$work"
		"${apt[@]}" download user-mode-linux || { "${apt[@]}" update && "${apt[@]}" download user-mode-linux; }
		dpkg -x user-mode-linux_*.deb root
		cd - >/dev/null
		mkdir -p out
		cp -r "$work/root" "out/uml.$$"
		mv -T "out/uml.$$" out/uml 2>/dev/null || rm -rf "out/uml.$$" # another process was faster
	)
	[[ -e out/uml ]] && echo "deps: unpacked user-mode-linux into out/uml"
}

# pods: unpacks into out/kube/pod what containers need in addition to agnhost: a shell and
# the clients that the Kubernetes tests use.
pods() {
	[[ -e out/kube/pod ]] && return
	local work root deb
	work=$(mktemp -d)
	chmod 777 "$work"
	root=$work/root
	(
		trap 'rm -rf "$work"' EXIT
		mkdir -p "$work/partial" "$root"/{dev,etc,proc,root,sys,tmp}
		# With no status, nothing counts as installed, so all dependencies are downloaded,
		# too. dash is /bin/sh: the shell of busybox would use its built-in nc.
		set -- -o Dir::State::status=/dev/null -o Dir::Cache::archives="$work" --no-install-recommends -y -d install dash curl netcat-openbsd busybox-static
		"${apt[@]}" "$@" >/dev/null || { "${apt[@]}" update && "${apt[@]}" "$@" >/dev/null; }
		for deb in "$work"/*.deb; do dpkg -x "$deb" "$root"; done
		ln -s nc.openbsd "$root/bin/nc"
		chroot "$root" /bin/busybox --install -s /bin 2>/dev/null # everything except what exists
		rm -rf "$root"/usr/share/{doc,man,info,locale} "$root"/usr/lib/*/gconv
		mkdir -p out/kube
		cp -a "$root" "out/kube/pod.$$"
		mv -T "out/kube/pod.$$" out/kube/pod 2>/dev/null || rm -rf "out/kube/pod.$$" # another process was faster
	)
	[[ -e out/kube/pod ]] && echo "deps: unpacked the pods' programs into out/kube/pod"
}

case $1 in
test | guest) kernel ;;
cluster) pods ;;
esac
((${#missing[@]})) || exit 0

if ((EUID)); then
	echo "deps: missing: ${missing[*]}; run this as root, or: sudo apt-get install ${missing[*]}" >&2
	exit 1
fi

# The tests start the daemons in namespaces. On this machine they must not run, neither
# now nor after a reboot.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
"${apt[@]}" update
"${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >/dev/null
for p in "${missing[@]}"; do
	[[ " ${daemons[*]} openvswitch-switch nginx " == *" $p "* ]] || continue
	service=${p/bird2/bird}
	[[ ! -e /etc/init.d/$service ]] || update-rc.d "$service" disable || echo "deps: $service may start at boot" >&2
	! command -v systemctl >/dev/null || systemctl -q disable "$service.service" || echo "deps: $service may start at boot" >&2
done
echo "deps: installed ${missing[*]}"
