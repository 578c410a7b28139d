#!/usr/bin/env bash
# Generate the CRD manifests and the deepcopy code of Fairlead's own resources from their
# types, and compare them with the committed files. The argument is the directory of the
# tools.
set -euo pipefail
cd "$(dirname "$0")/.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

"$1/controller-gen" object crd paths=./api/v1alpha1 output:object:dir="$made/go" output:crd:dir="$made/crds"
diff -r "$made/crds" deploy/crds && diff "$made/go/zz_generated.deepcopy.go" api/v1alpha1/ || {
	echo "CRDs do not match the Go types; run: go generate ./api/..." >&2
	exit 1
}
