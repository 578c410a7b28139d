#!/usr/bin/env bash
# Upgrade everything from one version to another and back, under traffic.
#
#   scripts/test-upgrade.sh FROM TO [TEST FLAG...]
#
# FROM is the previous commit. TO is empty for this tree, a commit, or next-layout: this
# tree with different layouts of its pinned maps. Builds of commits are cached in
# out/upgrade.
set -euo pipefail
cd "$(dirname "$0")/.."
from=${1:?FROM names the commit to upgrade from, as in make test-upgrade FROM=HEAD~20}
to=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tree COMMIT DIR: extracts the files of the commit.
tree() {
	mkdir -p "$2"
	git archive "$1" | tar -x -C "$2"
}

# build DIR FILE
build() {
	mkdir -p "$(dirname "$2")"
	CGO_ENABLED=0 go build -C "$1" -trimpath -ldflags "-s -w -X github.com/fairlead/fairlead/internal/version.stamped=$3" -o "$2" ./cmd/fairlead
}

# commit COMMIT: builds a commit, and prints the path of the binary.
commit() {
	local id file
	id=$(git rev-parse --short=12 --verify "$1^{commit}")
	file=$PWD/out/upgrade/$id/fairlead
	if [[ ! -e $file ]]; then
		tree "$id" "$work/$id"
		build "$work/$id" "$file" "$id" >&2
	fi
	echo "$file"
}

FAIRLEAD_PREVIOUS=$(commit "$from")
export FAIRLEAD_PREVIOUS
case $to in
'') ;;
next-layout)
	mkdir "$work/next"
	scripts/copy-tree.sh "$work/next"
	scripts/next-layout.sh "$work/next"
	build "$work/next" "$work/fairlead-next" next-layout
	export FAIRLEAD_NEXT=$work/fairlead-next
	;;
*)
	FAIRLEAD_NEXT=$(commit "$to")
	export FAIRLEAD_NEXT
	;;
esac
go test -p 1 -count=1 -timeout 60m -v -run '^Test(Rolling|Killed|CrashLoop|Networks|Upgrade|IPVS)$' ./lab/e2e/upgrade ./lab/kube/chain ./lab/e2e/nobgp "$@"
