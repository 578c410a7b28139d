#!/usr/bin/env bash
# Build the BPF objects and the Go beside them in a copy of the tree, and
# compare with those that are committed.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

scripts/copy-tree.sh "$copy"

# objects DIR: what generating makes there, but for what is not committed.
objects() {
	(cd "$1" && find . -regex '.*_bpfe[lb]\(_test\)?\.\(go\|o\)' -not -path './out/*')
}

(cd "$copy" && objects . | xargs -r rm) # so that what is not made anew is missed
go -C "$copy" generate ./...

wrong=()
while IFS= read -r f; do
	cmp -s "$f" "$copy/$f" || wrong+=("$f")
done < <({ objects .; objects "$copy"; } | sort -u)
if ((${#wrong[@]})); then
	printf 'not what the sources give: %s\nrun: make generate\n' "${wrong[*]}" >&2
	exit 1
fi
