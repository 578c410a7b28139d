#!/usr/bin/env bash
# Build programs of Kubernetes into out/kube/bin from the modules tools/kube,
# tools/kube/coredns and tools/kube/multus:
#
#   scripts/kube.sh NAME...     etcd, kubelet, e2e.test ...: all are in build
#
# Needs Go and its module proxy alone (pause, which is C, a compiler). What was built from the same module
# files by the same Go is not built again. One program after the other, so that
# what they share is compiled once.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$PWD/out/kube/bin
mkdir -p "$bin"
cd tools/kube

export CGO_ENABLED=0 GOFLAGS="-mod=readonly -trimpath -tags=grpcnotrace" GOWORK=off
go mod download k8s.io/kubernetes
read -r version source < <(go list -m -f '{{.Version}} {{.Dir}}' k8s.io/kubernetes)
flags="-s -w -X main.Version=$(cat "$source/test/images/agnhost/VERSION")" # by which agnhost's image is known
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags+=" -X $p.gitVersion=$version -X $p.gitMajor=1 -X $p.gitMinor=$(cut -d. -f2 <<<"$version") -X $p.gitTreeState=clean"
done

# build NAME FILE: builds a program into a file.
build() {
	local command=(build) package
	case $1 in
	etcd) package=go.etcd.io/etcd/server/v3 ;;
	agnhost) package=k8s.io/kubernetes/test/images/agnhost ;;
	pause)
		gcc -Os -Wall -static -s -o "$2" "$source/build/pause/linux/pause.c"
		return
		;;
	coredns) package=. command=(-C coredns build) ;;
	multus) package=gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus command=(-C multus build) ;;
	e2e.test) package=k8s.io/kubernetes/test/e2e command=(test -c -vet=off) ;;
	kube-apiserver | kube-controller-manager | kube-scheduler | kube-proxy | kubelet | kubectl) package=k8s.io/kubernetes/cmd/$1 ;;
	*)
		echo "kube: unknown program $1; see build in scripts/kube.sh" >&2
		return 1
		;;
	esac
	go "${command[@]}" -ldflags "$flags" -o "$2" "$package"
}

exec 9>"$bin/.lock" # one build at a time
if ! flock -n 9; then
	# The other build may run at low priority, and somebody waits for it now.
	builder=$(cat "$bin/.builder" 2>/dev/null || true)
	[[ -z $builder ]] || renice -n 0 -g "$builder" >/dev/null 2>&1 || true
	flock 9
fi
read -r _ _ _ _ group _ <"/proc/$$/stat"
echo "$group" >"$bin/.builder"
from=$({ go version && cat go.mod go.sum coredns/* multus/* ../../scripts/kube.sh; } | sha256sum)
for name; do
	[[ -x $bin/$name && $(cat "$bin/.$name.from" 2>/dev/null) == "$from" ]] && continue
	began=$SECONDS
	echo "kube: building $name (takes minutes the first time)"
	# Moved into its place when finished: tests may be running its predecessor.
	build "$name" "$bin/.$name.new"
	mv "$bin/.$name.new" "$bin/$name"
	echo "$from" >"$bin/.$name.from"
	echo "kube: built $name in $((SECONDS - began)) s"
done
