#!/usr/bin/env bash
# Build, check or serve the documentation site (mkdocs.yml):
#
#   scripts/docs.sh build|check|serve
#
# The check builds the site, which fails on broken links and anchors, then checks spelling
# and the contrast of colours. The tools are installed into out/docs, at the versions of
# tools/docs/requirements.txt.
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
# Words that are no mistakes: names and abbreviations.
spelling() { git ls-files -z '*.md' 'deploy/helm/*' | xargs -0 "$env/bin/codespell" --builtin clear,rare,en-GB_to_en-US --ignore-words-list nd,fo,notin,covert,retryin; }
# Without --quiet, which would also hide the warnings that --strict counts.
build() { "$env/bin/mkdocs" build --strict 2> >(grep -v '^INFO' >&2); }
case "${1-}" in
build) build ;;
check)
	build
	"$env/bin/python" tools/docs/contrast.py out/site
	spelling
	;;
serve) "$env/bin/mkdocs" serve --dev-addr 127.0.0.1:8000 ;;
*)
	echo "usage: $0 build|check|serve" >&2
	exit 2
	;;
esac
