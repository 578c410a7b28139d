#!/usr/bin/env bash
# Run every static check, and report all failures at the end. The argument is the
# directory for the tools, which tools/go.mod pins.
set -uo pipefail
cd "$(dirname "$0")/.."
tools=$1
failed=()

# check NAME COMMAND...: runs a check that fails if the command does.
check() {
	local name=$1
	shift
	echo "lint: $name"
	"$@" || failed+=("$name")
}

formatted() {
	local wrong
	wrong=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0r gofmt -l) || return
	[[ -z $wrong ]] && return
	printf 'not formatted (fix: gofmt -w):\n%s\n' "$wrong"
	return 1
}

c_formatted() {
	git ls-files -z --cached --others --exclude-standard 'bpf/*.c' 'bpf/*.h' | xargs -0r clang-format-19 --dry-run -Werror
}

# Without the vulnerability database, print a notice and continue. Any other failure is an
# error.
vulnerabilities() {
	local said
	said=$("$tools/govulncheck" ./... 2>&1) && return
	if grep -q 'fetching vulnerabilities' <<<"$said"; then
		echo "vulnerability database unreachable: check skipped"
		return
	fi
	printf '%s\n' "$said"
	return 1
}

GOBIN=$tools go -C tools install tool || exit
check gofmt formatted
check "go vet" go vet ./...
check staticcheck "$tools/staticcheck" ./...
check govulncheck vulnerabilities
check clang-format c_formatted
check "BPF objects" scripts/check-objects.sh
check resources scripts/check-crds.sh "$tools"
check wording go run ./scripts/wording
check "documentation site" scripts/docs.sh check

if ((${#failed[@]})); then
	printf 'lint: failed: %s\n' "${failed[*]}" >&2
	exit 1
fi
echo "lint: all good"
