#!/usr/bin/env bash
# Copy the files of the tree, including uncommitted ones, to a directory.
#
#   scripts/copy-tree.sh DIR
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' f; do [[ -e $f ]] && printf '%s\0' "$f"; done |
	xargs -0 cp --no-dereference --parents -t "$1"
