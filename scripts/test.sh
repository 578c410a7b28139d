#!/usr/bin/env bash
# Run the tests of packages by scripts/testrun:
#
#   scripts/test.sh [PACKAGE...] [-- GO-TEST-FLAG...]
#
# Without packages these are all but lab/bench/kubeproxy, which builds kube-proxy.
# VERBOSE=1 prints all output as tests run; RECORD=1 updates the file of durations
# that says which packages start first. etcd and kube-apiserver are built while
# the first tests run, where packages need them; those packages come last then.
set -euo pipefail
cd "$(dirname "$0")/.."

go build -o bin/testrun ./scripts/testrun
run=(bin/testrun -log out/test.log -durations scripts/testrun/durations.txt)
[[ -z ${VERBOSE-} ]] || run+=(-v)
[[ -z ${RECORD-} ]] || run+=(-record)

packages=()
while (($#)) && [[ $1 != -- ]]; do
	packages+=("$1")
	shift
done
listed=$(go list -e "${packages[@]-./...}")
((${#packages[@]})) || mapfile -t packages < <(grep -v /lab/bench/kubeproxy <<<"$listed")

# Background jobs get their own process groups, so that both a signal to this script and
# one from the terminal to its group end them completely.
set -m
kube=
if grep -qE '/kube(/|$)' <<<"$listed"; then
	[[ -x out/kube/bin/kube-apiserver ]] || run+=(-last '/kube(/|$)')
	nice scripts/kube.sh etcd kube-apiserver </dev/null & # its priority is raised by waiting processes
	kube=$!
fi
trap '[[ -z $kube ]] || kill -TERM -- "-$kube" 2>/dev/null || true' EXIT
"${run[@]}" "${packages[@]}" "$@" </dev/null &
tests=$!
trap 'kill -INT -- "-$tests" 2>/dev/null || true' INT TERM HUP
status=0
while wait "$tests" || status=$?; do
	kill -0 "$tests" 2>/dev/null || break # wait also ends with a signal
done
exit "$status"
