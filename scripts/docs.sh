#!/usr/bin/env bash
# Build or serve the documentation site (mkdocs.yml):
#
#   scripts/docs.sh build|serve
#
# mkdocs is installed into out/docs, at the versions of tools/docs/requirements.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh docs
env=out/docs
if ! cmp -s tools/docs/requirements.txt "$env/requirements.txt"; then
	rm -rf "$env"
	python3 -m venv "$env"
	"$env/bin/pip" install --quiet --disable-pip-version-check -r tools/docs/requirements.txt
	cp tools/docs/requirements.txt "$env/requirements.txt"
fi
export NO_MKDOCS_2_WARNING=1 # about a later release of the theme
case "${1-}" in
build) "$env/bin/mkdocs" build --quiet --strict ;;
serve) "$env/bin/mkdocs" serve --dev-addr 127.0.0.1:8000 ;;
*)
	echo "usage: $0 build|serve" >&2
	exit 2
	;;
esac
