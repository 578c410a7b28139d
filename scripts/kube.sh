#!/usr/bin/env bash
# Build programs of Kubernetes into out/kube/bin from the module tools/kube:
#
#   scripts/kube.sh NAME...     kube-apiserver, etcd, kubelet ...: all are in package_of
#
# Needs Go and its module proxy alone. What was built from the same module
# files by the same Go is not built again. One program after the other, so that
# what they share is compiled once.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$PWD/out/kube/bin
mkdir -p "$bin"
cd tools/kube

# package_of NAME: the package of a program.
package_of() {
	case $1 in
	etcd) echo go.etcd.io/etcd/server/v3 ;;
	agnhost) echo k8s.io/kubernetes/test/images/agnhost ;;
	kube-apiserver | kube-controller-manager | kube-scheduler | kube-proxy | kubelet | kubectl) echo "k8s.io/kubernetes/cmd/$1" ;;
	*)
		echo "kube: no program is named $1; see package_of in scripts/kube.sh" >&2
		return 1
		;;
	esac
}

export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
flags="-s -w"
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags+=" -X $p.gitVersion=$version -X $p.gitMajor=1 -X $p.gitMinor=$(cut -d. -f2 <<<"$version") -X $p.gitTreeState=clean"
done
from=$( (go version && cat go.mod go.sum ../../scripts/kube.sh) | sha256sum)

# build NAME: moves a finished program into its place at once, since tests may
# be waiting for it or running its predecessor.
build() {
	local package began=$SECONDS
	package=$(package_of "$1")
	[[ -x $bin/$1 && $(cat "$bin/.$1.from" 2>/dev/null) == "$from" ]] && return
	echo "kube: building $1 $version, which takes minutes the first time"
	nice go build -trimpath -tags grpcnotrace -ldflags "$flags" -o "$bin/.$1.new" "$package"
	mv "$bin/.$1.new" "$bin/$1"
	echo "$from" >"$bin/.$1.from"
	echo "kube: built $1 in $((SECONDS - began)) s"
}

exec 9>"$bin/.lock" # one build at a time
flock 9
for name; do build "$name"; done
