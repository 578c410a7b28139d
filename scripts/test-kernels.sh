#!/usr/bin/env bash
# Run tests of the BPF programs inside guests with other kernels: does their
# verifier take the objects, do the programs do there what they do here?
#
#   [RUN='TestTunnel|TestBond'] scripts/test-kernels.sh [SERIES...]     default: 6.1 6.12
#
# RUN takes other tests of the same packages than TESTS names: a regular
# expression for whole names. TESTS may be given, too, and LIMIT.
#
# A guest is Debian's kernel of that series in qemu, emulated (no hardware
# virtualisation needed), with nothing but busybox and the test binaries in its
# memory. Emulation is some thirty times slower, so only what TESTS names runs.
# Kernels are kept in out/kernels.
set -euo pipefail
cd "$(dirname "$0")/.."

# A package and its tests, a line each.
TESTS=${TESTS:-"./dataplane/xdp ^(TestConformance|TestTunnel|TestDirectNAT|TestFullNAT|TestUntouched|TestNotServed|TestVerifierStatistics|TestBond|TestVLANDevice|TestTrace|TestCaptureBeforeAndAfter)$
./dataplane/serverhalf ^(TestTunnel|TestTunnelOfTheOtherFamily|TestDirectNAT|TestFromServer|TestTraffic|TestSecondChance)$
./dataplane/proxy ^(TestTCPSocket.*|TestConnectedUDPSocket|TestUnconnectedUDPSocket.*|TestNoTargets|TestNodePorts.*|TestNodeOnly|TestAffinity|TestHoldsWhatIsMeant|TestRestartUnderConnections|TestEndsUDPSockets.*|TestKeepsUDPSockets.*)$
./dataplane/proxy/packet ^(TestProtocols|TestFlowsEnd|TestReset|TestSweepSparesTheNextFlow|TestSameToTheTarget|TestNoEndpoints|TestTargetsOwnErrors|TestHairpin|TestTakesOverFromKubeProxy)$
./vdn/enforce/kernel ^TestOnePlan$"}
LIMIT=${LIMIT:-7200} # seconds a guest may take: on Linux 6.1 a load takes half a minute, on a busy machine two
MODULES="veth bridge sch_ingress cls_bpf nf_tables nft_ct nft_chain_nat nft_nat nft_masq bonding 8021q inet_diag udp_diag macvlan sch_htb"
cache=$PWD/out/kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# newest SERIES: the package of the newest kernel of a series.
newest() {
	apt-cache search --names-only "^linux-image-${1//./\\.}\\.[0-9].*-cloud-amd64\$" |
		awk '{print $1}' | grep -v dbg | sort -V | tail -1
}

# fetch SERIES: sees that $cache/SERIES holds boot/ and lib/modules/.
fetch() {
	local to=$cache/$1 package
	[[ -d $to/lib/modules ]] && return
	package=$(newest "$1")
	[[ $package ]] || { echo "test-kernels: Debian has no kernel $1 here" >&2; return 1; }
	echo "test-kernels: fetching $package"
	mkdir -p "$work/deb"
	chmod 777 "$work" "$work/deb" # apt downloads as a user of its own
	(cd "$work/deb" && apt-get -qq download "$package")
	mkdir -p "$to.part"
	dpkg -x "$work/deb/$package"_*.deb "$to.part"
	depmod -b "$to.part" "$(ls "$to.part/lib/modules")"
	rm -rf "$to" "$work/deb"
	mv "$to.part" "$to"
}

# with_dependencies KERNEL-DIR MODULE...: files of modules, in the order to load
# them; one that is built in has none.
with_dependencies() {
	local dir=$1 name path
	shift
	for name; do
		path=$(cd "$dir" && find . -name "$name.ko*" -printf '%P\n' | head -1)
		[[ $path ]] || continue
		awk -F': *' -v p="$path" '$1 == p {n = split($2, d, " "); for (i = n; i; i--) print d[i]; print p}' "$dir/modules.dep"
	done | awk '!seen[$0]++'
}

# The guest's first process: loads the modules, runs the tests, says how it went.
write_init() {
	cat >"$1" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TMPDIR=/tmp
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /tmp /run /root; mount -t tmpfs tmp /tmp; mount -t tmpfs run /run
mount -t cgroup2 cg /sys/fs/cgroup; mount -t bpf bpf /sys/fs/bpf
for m in /modules/*; do insmod "$m" || echo "guest: $m did not load"; done
ip link set lo up
status=0
while read -r binary dir tests; do
	echo "guest: $(uname -r): $dir $tests"
	cd "/src/$dir" || status=1
	"/tests/$binary" -test.run "$tests" -test.timeout 0 -test.v || status=1
done </tests/list
echo "guest: status $status"
poweroff -f
INIT
	chmod 755 "$1"
}

# build_tests DIR: test binaries, and what they read beside them.
build_tests() {
	local n=0 package tests dir
	mkdir -p "$1/tests"
	while read -r package tests; do
		[[ ! ${RUN-} ]] || tests="^($RUN)\$"
		n=$((n + 1))
		CGO_ENABLED=0 go test -c -trimpath -o "$1/tests/$n" "$package"
		dir=${package#./}
		mkdir -p "$1/src/$dir"
		[[ ! -d $dir/testdata ]] || cp -r "$dir/testdata" "$1/src/$dir/"
		echo "$n $dir $tests" >>"$1/tests/list"
	done <<<"$TESTS"
}

# boot SERIES: runs the tests under that kernel; what it prints is the guest's.
boot() {
	local kernel=$cache/$1 root=$work/root-$1 modules i=100 path
	modules=$(echo "$kernel"/lib/modules/*)
	cp -r "$work/base" "$root"
	mkdir -p "$root/modules"
	for path in $(with_dependencies "$modules" $MODULES); do
		i=$((i + 1))
		case $path in
		*.xz) xz -dc "$modules/$path" >"$root/modules/$i-$(basename "${path%.xz}")" ;;
		*) cp "$modules/$path" "$root/modules/$i-$(basename "$path")" ;;
		esac
	done
	(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$work/initrd-$1"
	timeout --foreground "$LIMIT" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 3072 \
		-nodefaults -no-user-config -display none -no-reboot -serial stdio \
		-kernel "$kernel"/boot/vmlinuz-* -initrd "$work/initrd-$1" \
		-append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable random.trust_cpu=1 no_timer_check" </dev/null
}

# outcome: how many tests ended in which way, and which were not run.
outcome() {
	awk '/^--- / {n[$2]++; if ($2 == "SKIP:") skipped = skipped " " $3}
		END {printf "%d passed, %d failed, %d skipped%s\n", n["PASS:"], n["FAIL:"], n["SKIP:"], skipped}' "$work/said"
}

main() {
	local series failed=()
	scripts/deps.sh kernels
	mkdir -p "$cache" "$work/base"/{bin,proc,sys,dev,etc}
	cp "$(command -v busybox)" "$work/base/bin/busybox"
	write_init "$work/base/init"
	build_tests "$work/base"
	for series; do
		fetch "$series"
		echo "test-kernels: $series"
		boot "$series" | sed -u 's/\r$//' | tee "$work/said" || true
		echo "test-kernels: $series: $(outcome)"
		grep -q '^guest: status 0' "$work/said" && grep -q '^--- PASS' "$work/said" || failed+=("$series")
	done
	if ((${#failed[@]})); then
		echo "test-kernels: failed under: ${failed[*]}" >&2
		return 1
	fi
	echo "test-kernels: all good"
}

if (($#)); then main "$@"; else main 6.1 6.12; fi
