#!/usr/bin/env bash
# Install what the tests ("test"), those of them that need IPVS ("guest") or other
# makes of BGP ("interop"), the checks ("lint"), the tests under other kernels
# ("kernels"), a whole cluster of Kubernetes ("cluster"), what the simulator is
# measured beside ("sim") or what looks at pages ("page") need beyond Go, from
# Debian's packages. Does nothing where all of it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

guest=(gcc libc6-dev iproute2 iptables kmod) # a compiler for what the guest's kernel has preloaded
daemons=(frr bird2 gobgpd exabgp)            # the BGP implementations that interoperation is tested with
plugins=containernetworking-plugins
case "${1-}" in
test) packages=(ca-certificates "${daemons[@]}" nftables openvswitch-switch "$plugins" "${guest[@]}") ;;
interop) packages=("${daemons[@]}" iproute2) ;;
guest) packages=("${guest[@]}") ;;
lint) packages=(ca-certificates git clang-19 clang-format-19 llvm-19 libbpf-dev linux-libc-dev) ;;
kernels) packages=(qemu-system-x86 busybox-static cpio kmod xz-utils) ;;
cluster) packages=(containerd runc "$plugins" iproute2 nftables kmod procps gcc libc6-dev) ;;
sim) packages=(ns2) ;;
page) packages=(chromium) ;;
bare) packages=(debootstrap git) ;;
*)
	echo "usage: $0 test|interop|guest|lint|kernels|cluster|sim|page|bare" >&2
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
apt=(apt-get -qq -o DPkg::Lock::Timeout=120)

# kernel: unpacks the guest's kernel and its modules into out/uml, where
# lab/guest looks. It is not installed: nothing on this machine is to be of it.
kernel() {
	[[ -e out/uml ]] && return
	local work
	work=$(mktemp -d)
	chmod 777 "$work" # apt downloads as a user of its own
	(
		trap 'rm -rf "$work"' EXIT
		cd "$work"
		"${apt[@]}" download user-mode-linux || { "${apt[@]}" update && "${apt[@]}" download user-mode-linux; }
		dpkg -x user-mode-linux_*.deb root
		cd - >/dev/null
		mkdir -p out
		cp -r "$work/root" "out/uml.$$"
		mv -T "out/uml.$$" out/uml 2>/dev/null || rm -rf "out/uml.$$" # another was faster
	)
	[[ -e out/uml ]] && echo "deps: unpacked user-mode-linux into out/uml"
}

# pods: unpacks into out/kube/pod what containers find beside agnhost: a shell
# and the clients that Kubernetes' tests ask with.
pods() {
	[[ -e out/kube/pod ]] && return
	local work root deb
	work=$(mktemp -d)
	chmod 777 "$work"
	root=$work/root
	(
		trap 'rm -rf "$work"' EXIT
		mkdir -p "$work/partial" "$root"/{dev,etc,proc,root,sys,tmp}
		# With no status nothing counts as installed, and all that they need comes
		# along. dash is /bin/sh: that of busybox would take its own nc.
		set -- -o Dir::State::status=/dev/null -o Dir::Cache::archives="$work" --no-install-recommends -y -d install dash curl netcat-openbsd busybox-static
		"${apt[@]}" "$@" >/dev/null || { "${apt[@]}" update && "${apt[@]}" "$@" >/dev/null; }
		for deb in "$work"/*.deb; do dpkg -x "$deb" "$root"; done
		ln -s nc.openbsd "$root/bin/nc"
		chroot "$root" /bin/busybox --install -s /bin 2>/dev/null # all but what is there
		rm -rf "$root"/usr/share/{doc,man,info,locale} "$root"/usr/lib/*/gconv
		mkdir -p out/kube
		cp -a "$root" "out/kube/pod.$$"
		mv -T "out/kube/pod.$$" out/kube/pod 2>/dev/null || rm -rf "out/kube/pod.$$" # another was faster
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

# The daemons are started by the tests, in namespaces; here they are not wanted,
# now or after a restart of this machine.
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
	[[ " ${daemons[*]} openvswitch-switch " == *" $p "* ]] || continue
	service=${p/bird2/bird}
	[[ ! -e /etc/init.d/$service ]] || update-rc.d "$service" disable || echo "deps: $service may start with this machine" >&2
	! command -v systemctl >/dev/null || systemctl -q disable "$service.service" || echo "deps: $service may start with this machine" >&2
done
echo "deps: installed ${missing[*]}"
