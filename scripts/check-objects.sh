#!/usr/bin/env bash
# Build the BPF objects and the generated Go in a copy of the tree, and compare them with
# the committed files.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

scripts/copy-tree.sh "$copy"

# objects DIR: lists the generated files there, except those that are not committed.
objects() {
	(cd "$1" && find . -regex '.*_bpfe[lb]\(_test\)?\.\(go\|o\)' -not -path './out/*')
}

(cd "$copy" && objects . | xargs -r rm) # so that files that are not regenerated are detected
go -C "$copy" generate ./...

wrong=()
while IFS= read -r f; do
	cmp -s "$f" "$copy/$f" || wrong+=("$f")
done < <({ objects .; objects "$copy"; } | sort -u)
if ((${#wrong[@]})); then
	printf 'BPF objects do not match their sources: %s\nrun: make generate\n' "${wrong[*]}" >&2
	exit 1
fi
