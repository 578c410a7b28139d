#!/usr/bin/env bash
# Change the layouts of pinned maps in a copy of the tree, as a release might: an
# additional field at the start of entries, and a new version. make test-upgrade
# TO=next-layout builds the result, to test that a release handles maps with an unknown
# layout.
#
#   scripts/next-layout.sh DIR
set -euo pipefail
cd "$1"

# field STRUCT FILE DECLARATION
field() {
	grep -q "^struct $1 {" "$2" || { echo "next-layout: $2 has no struct $1" >&2; exit 1; }
	sed -i "s/^struct $1 {\$/&\n\t$3/" "$2"
}

# after FILE LINE DECLARATION: for a struct whose beginning must not change.
after() {
	grep -q "$2" "$1" || { echo "next-layout: $1 has no line $2" >&2; exit 1; }
	sed -i "/$2/a\\	$3" "$1"
}

# version FILE MAP...: changes the version of maps in a table of persistent maps.
version() {
	local file=$1 name
	shift
	for name; do
		grep -qE "\<$name: *\{" "$file" || { echo "next-layout: $file does not contain $name" >&2; exit 1; }
		sed -Ei "s/\<$name:( *)\{(Version: [0-9]+, |Version: [0-9]+)?/$name:\1{Version: 1000, /" "$file"
	done
}

field frontend bpf/balancer/maps.h '__u64 next_layout;'
field server bpf/balancer/maps.h '__u64 next_layout;'
field member bpf/balancer/maps.h '__u64 next_layout;'
field guard_limits bpf/balancer/policy.h '__u64 next_layout;'
field flow_set bpf/balancer/flow.h '__u64 next_layout[2];'
version dataplane/xdp/state.go BalancerMap{Frontends,PortRanges,Servers,Members,GuardLimits,Flows,FlowData,FlowBack,FlowSecret,Connections}

field local_vip bpf/dsr/maps.h '__u64 next_layout;'
field server_flow_set bpf/dsr/flows.h '__u32 next_layout[16];'
sed -i '/^_Static_assert(sizeof(struct server_flow_set)/d' bpf/dsr/flows.h
version dataplane/dsr/maps.go serverMap{LocalVips,FlowTable}

field service bpf/proxy/maps.h '__u64 next_layout;'
field target bpf/proxy/maps.h '__u64 next_layout;'
after bpf/proxy/flow.h '__u32 check; .* flow_check() ' '__u64 next_layout;'
version dataplane/proxy/load.go proxyMap{Services,Targets}
version dataplane/proxy/packet/load.go packetMapPacketFlows

field vdn_owner bpf/vdn/maps.h '__u32 next_layout;'
version vdn/enforce/kernel/kernel.go vdnMapVdnPrefixes

gofmt -w dataplane/xdp/state.go dataplane/dsr/maps.go dataplane/proxy/load.go dataplane/proxy/packet/load.go vdn/enforce/kernel/kernel.go
go generate ./dataplane/... ./vdn/...
