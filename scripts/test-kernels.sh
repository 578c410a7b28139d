#!/usr/bin/env bash
# Run the tests that depend on the kernel inside guests with other kernels: does
# their verifier accept the BPF objects, and do the programs behave the same?
#
#   scripts/test-kernels.sh [-update] [SERIES...]     default: 6.1 6.12 newest
#
# A guest is Debian's cloud kernel of that series in qemu; "newest" is the newest
# one in the backports of this Debian release and the next. Its root file system
# is an initramfs with busybox, a few programs of this machine, the kernel's
# modules and the test binaries. lab/kernels lists the packages and tests.
#
# The results go to out/kernels/RESULT.json, where those of a series replace earlier
# ones. -update also writes docs/kernels.json and docs/kernels.md. With ONLY, the
# results of those packages replace earlier ones of the same kernel; with RUN,
# nothing is recorded. Each guest's output is in out/kernels/RELEASE.log, or
# RELEASE-part.log with ONLY or RUN.
#
# ACCEL   kvm or tcg; default: kvm if a guest boots with it, tcg (emulation, some
#         thirty times slower) otherwise
# ONLY    regular expression for the packages to test
# ALL     1 to run all tests even when emulated
# RUN     regular expression for the tests to run instead of the listed ones
# SKIP    regular expression for tests to leave out, which are recorded as skipped
# LIMIT   seconds that a guest may take
set -euo pipefail
cd "$(dirname "$0")/.."

MODULES="ip_vs veth ipip sit ip6_tunnel fou fou6" # loaded at boot; the kernel loads others on demand
PROGRAMS="ip tc nft kmod iptables-legacy iptables-legacy-save iptables-legacy-restore ip6tables-legacy ip6tables-legacy-save ip6tables-legacy-restore"
BACKPORTS="bookworm-backports trixie-backports"
cache=$PWD/out/kernels
work=$(mktemp -d)
guest= # process id of qemu

finish() {
	[[ ! $guest ]] || { kill "$guest" && wait "$guest"; } 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# backports COMMAND...: an apt command that sees only the backports, from the
# mirror that this machine is configured with.
backports() {
	local command=$1 dir=$work/apt mirror suite
	shift
	if [[ ! -d $dir ]]; then
		mkdir -p "$dir/lists/partial"
		mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
			awk -v own="$(. /etc/os-release && echo "$VERSION_CODENAME")" '$1 == own {print $2; exit}')
		for suite in $BACKPORTS; do echo "deb $mirror $suite main"; done >"$dir/sources.list"
		chmod -R a+rX "$work"
		backports apt-get -qq update >&2 || echo "test-kernels: cannot read all of the backports" >&2
	fi
	"$command" -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$dir/lists" \
		-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Acquire::Languages=none "$@"
}

# newest PATTERN COMMAND...: the package of the newest cloud kernel whose version
# matches, as that apt-cache command knows it.
newest() {
	local pattern=$1
	shift
	"$@" search --names-only "^linux-image-$pattern.*-cloud-amd64\$" |
		awk '{print $1}' | grep -v dbg | grep -E '^linux-image-[0-9]+\.[0-9]+\.[0-9]' | sort -V | tail -1 || true
}

# find_kernel SERIES: prints the package of its newest kernel, and the apt command
# that downloads it.
find_kernel() {
	local package=
	if [[ $1 == newest ]]; then
		package=$(newest '[0-9]' backports apt-cache)
	else
		package=$(newest "${1//./\\.}\\.[0-9]" apt-cache)
		[[ ! $package ]] || { echo "$package apt-get"; return; }
		package=$(newest "${1//./\\.}\\.[0-9]" backports apt-cache)
	fi
	[[ $package ]] || { echo "test-kernels: Debian has no kernel $1 for this machine" >&2; return 1; }
	echo "$package backports apt-get"
}

# fetch SERIES: prints the release of its newest kernel, and ensures that $cache/RELEASE
# has vmlinuz and lib/modules. Since Linux 7, they are in separate packages.
fetch() {
	local found package release apt names deb to
	found=$(find_kernel "$1")
	read -r package apt <<<"$found"
	release=${package#linux-image-}
	echo "$release"
	to=$cache/$release
	[[ ! -e $to/vmlinuz ]] || return 0
	echo "test-kernels: fetching $package" >&2
	mkdir -p "$work/deb"
	chmod 755 "$work" && chmod 777 "$work/deb" # apt downloads as its own user
	names=$(${apt/apt-get/apt-cache} show "$package" | grep -m1 '^Depends:' | grep -oE 'linux-(base|binary|modules)-[^ ,]+' || true)
	(cd "$work/deb" && $apt -qq download "$package" $names)
	rm -rf "$to" "$to.part"
	mkdir -p "$to.part"
	for deb in "$work"/deb/*.deb; do dpkg -x "$deb" "$to.part"; done
	rm -rf "$work/deb"
	[[ -d $to.part/lib ]] || mv "$to.part/usr/lib" "$to.part/lib"
	cp "$to.part"/boot/vmlinuz-* "$to.part/vmlinuz" 2>/dev/null || cp "$to.part"/lib/modules/*/vmlinuz "$to.part/vmlinuz"
	find "$to.part/lib/modules" -name '*.ko.xz' -print0 | xargs -0r xz -d
	depmod -b "$to.part" "$release"
	mv "$to.part" "$to"
}

# The guest's first process: loads modules, runs the tests, prints the outcomes.
write_init() {
	cat >"$1" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/bin HOME=/root TMPDIR=/tmp XTABLES_LIBDIR=/xtables
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts; mount -t tmpfs shm /dev/shm; mount -t devpts pts /dev/pts
mount -t tmpfs tmp /tmp; mount -t tmpfs run /run
mount -t cgroup2 cg /sys/fs/cgroup; mount -t bpf bpf /sys/fs/bpf
mount -t tracefs trace /sys/kernel/tracing
ip link set lo up
echo 1 >/proc/sys/net/core/fb_tunnels_only_for_init_net # a new namespace has only lo
echo "guest: kernel $(uname -r)"
for m in $(cat /tests/modules); do modprobe "$m" || echo "guest: module $m did not load"; done
while read -r binary dir run skip; do
	echo "guest: suite $dir"
	cd "/src/$dir"
	"/tests/$binary" -test.run "$run" -test.skip "$skip" -test.timeout "$(cat /tests/timeout)s" -test.v=test2json </dev/null
	printf '\nguest: end %s status %d\n' "$dir" $?
done </tests/list
echo "guest: done"
poweroff -f
INIT
	chmod 755 "$1"
}

# install_program ROOT PROGRAM...: copies programs of this machine and the
# libraries they load.
install_program() {
	local root=$1 name path
	shift
	for name; do
		path=$(command -v "$name") || { echo "test-kernels: no $name on this machine" >&2; return 1; }
		cp -L "$path" "$root/usr/sbin/$name"
		ldd "$path" 2>/dev/null | grep -oE '/[^ ]+' | while read -r path; do
			mkdir -p "$root$(dirname "$path")"
			cp -Ln "$path" "$root$path"
		done
	done
}

# build_base ROOT: the complete initramfs except the kernel's modules and the list of
# tests.
build_base() {
	mkdir -p "$1"/{bin,sbin,usr/sbin,usr/bin,proc,sys,dev,etc,tmp,run,root,src,tests,xtables,lib/modules}
	cp "$(command -v busybox)" "$1/bin/busybox"
	# shellcheck disable=SC2086 # a list of words
	install_program "$1" $PROGRAMS
	ln -s ../usr/sbin/kmod "$1/sbin/modprobe"
	ln -s kmod "$1/usr/sbin/modprobe"
	for name in iptables ip6tables; do
		for program in "" -save -restore; do ln -s "$name-legacy$program" "$1/usr/sbin/$name$program"; done
	done
	cp -r "$(dirname "$(find /usr/lib -name libxt_conntrack.so | head -1)")/." "$1/xtables/"
	printf 'root:x:0:0::/root:/bin/sh\n' >"$1/etc/passwd"
	echo "$MODULES" >"$1/tests/modules"
	write_init "$1/init"
}

# build_tests ROOT: test binaries, the list for the guest, and the files they read.
build_tests() {
	local n=0 package run skip
	: >"$1/tests/list"
	while read -r package run skip; do
		[[ -d $package && $package =~ ${ONLY-} ]] || continue
		[[ ! ${RUN-} ]] || run="^($RUN)\$"
		[[ ! ${SKIP-} ]] || skip="${skip%)\$}|$SKIP)\$"
		n=$((n + 1))
		CGO_ENABLED=0 go test -c -trimpath -ldflags '-s -w' -o "$1/tests/$n" "./$package"
		mkdir -p "$1/src/$package"
		echo "$n $package $run $skip" >>"$1/tests/list"
	done < <(go run ./lab/kernels list $([[ $accel == kvm || ${ALL-} ]] || echo -emulated))
	cp --parents go.mod docs/*.md $(git ls-files '*_bpfel.o' '*/testdata/*' | grep -E '_bpfel.o$|^(dataplane|vdn|router|lab/bench/xdpbench|advertise/l2|internal/features)/') "$1/src/"
}

# initramfs ROOT RELEASE FILE
initramfs() {
	local root=$1/lib/modules/$2 from=$cache/$2/lib/modules/$2
	rm -rf "$1"/lib/modules/*
	mkdir -p "$root/kernel/drivers"
	cp -r "$from/kernel"/{net,lib,crypto,fs} "$root/kernel/"
	cp -r "$from/kernel/drivers"/{net,vhost,virtio} "$root/kernel/drivers/" 2>/dev/null || true
	cp -r "$from/kernel/arch" "$root/kernel/" 2>/dev/null || true
	cp "$from"/modules.{order,builtin,builtin.modinfo} "$root/"
	depmod -b "$1" "$2"
	(cd "$1" && find . | cpio --quiet -o -H newc) >"$3"
}

# boot SECONDS ACCEL RELEASE INITRAMFS LOG: runs a guest to its end.
boot() {
	# Five-level page tables and similar features slow down emulation without benefit
	# here.
	local options=(-accel tcg,thread=multi -cpu max,-la57,-smap,-smep,-umip,-pku)
	[[ $2 == tcg ]] || options=(-accel kvm -cpu host)
	: >"$5"
	timeout "$1" qemu-system-x86_64 "${options[@]}" -smp 2 -m 4096 \
		-nodefaults -no-user-config -display none -no-reboot -serial stdio \
		-kernel "$cache/$3/vmlinuz" -initrd "$4" \
		-append "console=ttyS0 loglevel=2 oops=panic panic=-1 mitigations=off tsc=reliable random.trust_cpu=1 no_timer_check" \
		</dev/null >>"$5" 2>&1 &
	guest=$!
	tail -f --pid="$guest" -c +1 "$5" | grep --line-buffered -aE '^(guest: |.?--- FAIL|panic: |fatal error: |qemu-)' &
	wait "$guest" 2>/dev/null || true
	guest=
}

# choose_accel RELEASE: kvm if a guest without tests boots with it in half a minute. The
# existence of /dev/kvm is not sufficient: nested KVM may not run other kernels.
choose_accel() {
	accel=${ACCEL-}
	[[ ! $accel ]] || return 0
	accel=tcg
	if [[ -w /dev/kvm ]]; then
		cp -r "$work/base" "$work/probe"
		: >"$work/probe/tests/list"
		: >"$work/probe/tests/modules"
		(cd "$work/probe" && find . | cpio --quiet -o -H newc) >"$work/initramfs"
		boot 30 kvm "$1" "$work/initramfs" "$work/probe.log" >/dev/null
		if grep -q '^guest: done' "$work/probe.log"; then accel=kvm && return; fi
		echo "test-kernels: guests do not boot with /dev/kvm: $(grep -v '^ *$' "$work/probe.log" | head -1)"
	fi
	echo "test-kernels: without KVM the guests are emulated (tcg), and run a selection of the tests"
}

main() {
	local series release releases=() record=(-o "$cache/RESULT.json") failed=() began limit log
	[[ ${1-} != -update ]] || { record+=(-update) && shift; }
	(($#)) || set -- 6.1 6.12 newest
	[[ ! ${ONLY-} ]] || record+=(-partial)
	[[ ! ${RUN-} ]] || { record=() && echo "test-kernels: RUN is set: results are not recorded"; }
	scripts/deps.sh kernels
	mkdir -p "$cache"
	for series; do
		release=$(fetch "$series")
		echo "test-kernels: $series is $release"
		releases+=("$release")
	done
	build_base "$work/base"
	choose_accel "${releases[0]}"
	limit=${LIMIT:-$([[ $accel == kvm ]] && echo 1800 || echo 7200)}
	echo $((limit / 2)) >"$work/base/tests/timeout" # a single package must not use up all the time
	build_tests "$work/base"
	for series; do
		release=${releases[0]} releases=("${releases[@]:1}") began=$SECONDS
		log=$cache/$release.log
		[[ ! ${ONLY-}${RUN-} ]] || log=$cache/$release-part.log
		initramfs "$work/base" "$release" "$work/initramfs"
		boot "$limit" "$accel" "$release" "$work/initramfs" "$log"
		go run ./lab/kernels result -series "$series" -release "$release" -accel "$accel" -seconds $((SECONDS - began)) \
			-skip "${SKIP-}" "${record[@]}" "$log" || failed+=("$release")
	done
	if ((${#failed[@]})); then
		echo "test-kernels: failed: ${failed[*]}; see out/kernels/*.log" >&2
		return 1
	fi
	echo "test-kernels: all good"
}

main "$@"
