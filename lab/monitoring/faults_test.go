package monitoring

// fault is how a fault shows in metrics, and how the same metrics are without it: a series
// and its values in Prometheus's notation for tests, one value a minute.
type fault struct{ with, without []string }

// of is a fault of a single series.
func of(series, with, without string) fault {
	return fault{[]string{series + " " + with}, []string{series + " " + without}}
}

// constant values, and a counter that grows by ten a second.
const (
	no, yes = "0x150", "1x150"
	grows   = "0+600x150"
)

// faults has a fault for each alert.
var faults = map[string]fault{
	"FairleadDown":             of(`up{job="fairlead-agent",instance="n1"}`, no, yes),
	"FairleadConfigRejected":   of(`fairlead_config_errors{instance="n1"}`, yes, no),
	"FairleadObjectsStale":     of(`fairlead_stale_objects{instance="n1"}`, yes, no),
	"FairleadReconcileFailing": of(`fairlead_reconcile_errors_total{instance="n1"}`, "0+1x150", "7x150"),
	"FairleadReconcileSlow": {
		[]string{`fairlead_reconcile_duration_seconds_bucket{instance="n1",le="5"} 0x150`, `fairlead_reconcile_duration_seconds_bucket{instance="n1",le="10"} 0+6x150`, `fairlead_reconcile_duration_seconds_bucket{instance="n1",le="+Inf"} 0+6x150`},
		[]string{`fairlead_reconcile_duration_seconds_bucket{instance="n1",le="5"} 0+6x150`, `fairlead_reconcile_duration_seconds_bucket{instance="n1",le="10"} 0+6x150`, `fairlead_reconcile_duration_seconds_bucket{instance="n1",le="+Inf"} 0+6x150`},
	},
	"FairleadDegraded": {with: []string{`fairlead_degraded{instance="n1",feature="netkit",reason="EINVAL"} 1x150`}},
	"FairleadVersionSkew": {
		[]string{`fairlead_build_info{instance="n1",role="balancer",version="v1"} 1x150`, `fairlead_build_info{instance="n2",role="balancer",version="v2"} 1x150`},
		[]string{`fairlead_build_info{instance="n1",role="balancer",version="v1"} 1x150`, `fairlead_build_info{instance="r",role="router",version="v2"} 1x150`},
	},
	"FairleadDrainLong":     of(`fairlead_drain_stage{instance="n1",stage="withdrawn"}`, yes, "0x2 1x5 0x150"),
	"FairleadDrainDeferred": of(`fairlead_drain_stage{instance="n1",stage="deferred"}`, yes, no),
	"FairleadTableFilling":  table("90x150"),
	"FairleadTableFull":     table("99x150"),

	"FairleadFrontendDown":          of(`fairlead_frontends{instance="n1",state="no-healthy-backend"}`, yes, no),
	"FairleadFrontendPanic":         of(`fairlead_frontends{instance="n1",state="panic"}`, yes, no),
	"FairleadFrontendNotProgrammed": of(`fairlead_frontends{instance="n1",state="conflict"}`, yes, "0x2 1x3 0x150"),
	"FairleadBackendsDown": {
		[]string{`fairlead_backends{instance="n1",health="up"} 5x150`, `fairlead_backends{instance="n1",health="down"} 5x150`},
		[]string{`fairlead_backends{instance="n1",health="up"} 9x150`, `fairlead_backends{instance="n1",health="down"} 1x150`},
	},
	"FairleadPacketsDropped":      of(`fairlead_dropped_packets_total{instance="n1",reason="no-backend"}`, grows, "5x150"),
	"FairleadPacketsSpoofed":      of(`fairlead_dsr_packets_total{instance="n1",outcome="dropped-unknown-balancer"}`, grows, "5x150"),
	"FairleadSYNFlood":            of(`fairlead_service_syn_protection_active{instance="n1",service="default/web"}`, yes, no),
	"FairleadDSRPacketsDropped":   of(`fairlead_dsr_packets_total{instance="n1",outcome="dropped-flows-full"}`, grows, "5x150"),
	"FairleadProxyNotSynced":      of(`fairlead_proxy_unwritten_frontends{instance="n1"}`, "3x150", "0x2 3x3 0x150"),
	"FairleadProxySlow":           slow(),
	"FairleadProxyPacketsDropped": of(`fairlead_proxy_dropped_packets_total{instance="n1",reason="flows-full"}`, grows, "5x150"),

	"FairleadBGPSessionDown":     of(`fairlead_bgp_session_up{instance="n1",peer="tor-1"}`, no, yes),
	"FairleadBGPIsolated":        {[]string{`fairlead_bgp_session_up{instance="n1",peer="tor-1"} 0x150`, `fairlead_bgp_session_up{instance="n1",peer="tor-2"} 0x150`}, []string{`fairlead_bgp_session_up{instance="n1",peer="tor-1"} 1x150`, `fairlead_bgp_session_up{instance="n1",peer="tor-2"} 0x1 1x150`}},
	"FairleadBGPSessionFlapping": of(`fairlead_bgp_session_flaps_total{instance="n1",peer="tor-1"}`, "0+1x150", "4x150"),
	"FairleadBFDSessionDown":     of(`fairlead_bfd_session_up{instance="n1",peer="tor-1"}`, no, yes),
	"FairleadRoutesMissing": {
		[]string{`fairlead_routes{instance="n1",advertised="true"} 0x150`, `fairlead_routes{instance="n1",advertised="false"} 2x150`, `fairlead_drain_stage{instance="n1",stage="drained"} 0x150`},
		[]string{`fairlead_routes{instance="n1",advertised="true"} 0x150`, `fairlead_routes{instance="n1",advertised="false"} 2x150`, `fairlead_drain_stage{instance="n1",stage="drained"} 1x150`},
	},
	"FairleadWithdrawalUnconfirmed": of(`fairlead_withdrawing_routes{instance="n1"}`, yes, "0x2 1x1 0x150"),
	"FairleadFIBDegraded":           of(`fairlead_fib_degraded_prefixes{instance="r"}`, yes, no),
	"FairleadL2AddressUnowned":      of(`fairlead_l2_addresses{instance="n1",state="conflict"}`, yes, no),
	"FairleadL2AddressOwnedTwice": {
		[]string{`fairlead_l2_address_owned{instance="n1",address="10.0.0.9"} 1x150`, `fairlead_l2_address_owned{instance="n2",address="10.0.0.9"} 1x150`},
		[]string{`fairlead_l2_address_owned{instance="n1",address="10.0.0.9"} 1x150`, `fairlead_l2_address_owned{instance="n2",address="10.0.0.8"} 1x150`},
	},

	"FairleadControllerNoLeader": {
		[]string{`fairlead_controller_leader{instance="c1"} 0x150`, `fairlead_controller_leader{instance="c2"} 0x150`},
		[]string{`fairlead_controller_leader{instance="c1"} 0x150`, `fairlead_controller_leader{instance="c2"} 1x150`},
	},
	"FairleadControllerAPIErrors": {
		[]string{`fairlead_controller_api_requests_total{instance="c1",method="PATCH",code="403"} 0+60x150`, `fairlead_controller_api_requests_total{instance="c1",method="GET",code="200"} 0+60x150`},
		[]string{`fairlead_controller_api_requests_total{instance="c1",method="PATCH",code="409"} 0+60x150`, `fairlead_controller_api_requests_total{instance="c1",method="GET",code="200"} 0+60x150`},
	},
	"FairleadControllerBehind":       of(`fairlead_controller_queue_depth{instance="c1",queue="addresses"}`, "500x150", "500x5 0x150"),
	"FairleadServicesWithoutAddress": of(`fairlead_controller_services{instance="c1",assigned="false"}`, yes, no),
	"FairleadPoolFilling": {
		[]string{`fairlead_pool_addresses{instance="c1",pool="web",family="IPv4"} 100x150`, `fairlead_pool_used_addresses{instance="c1",pool="web",family="IPv4"} 95x150`},
		[]string{`fairlead_pool_addresses{instance="c1",pool="web",family="IPv4"} 100x150`, `fairlead_pool_used_addresses{instance="c1",pool="web",family="IPv4"} 85x150`},
	},
	"FairleadPoolRejected": of(`fairlead_pool_rejected{instance="c1",pool="web"}`, yes, no),

	"FairleadVDNStoreDown":             of(`fairlead_vdn_store_up{instance="v1"}`, no, yes),
	"FairleadVDNNoLeader":              of(`fairlead_vdn_leader{instance="v1"}`, no, yes),
	"FairleadVDNNodeSilent":            of(`fairlead_vdn_node_alive{instance="v1",node="n1"}`, no, yes),
	"FairleadVDNPlanFailed":            of(`fairlead_vdn_agent_plan_failed{instance="n1"}`, yes, no),
	"FairleadVDNControllerUnreachable": of(`fairlead_vdn_agent_controllers_unreachable_seconds{instance="n1"}`, "0+60x150", no),
	"FairleadVDNPeerDisconnected":      of(`fairlead_vdn_peer_connected{instance="v1",peer="other"}`, no, yes),
	"FairleadVDNSubnetFull":            of(`fairlead_vdn_pool_free_addresses{instance="v1",network="a",cidr="10.1.0.0/24"}`, no, "9x150"),
	"FairleadVDNUplinkOverbooked":      of(`fairlead_vdn_overbooked_uplinks{instance="v1"}`, yes, no),
}

func table(used string) fault {
	entries, size := `fairlead_table_entries{instance="n1",table="flows"} `, `fairlead_table_max_entries{instance="n1",table="flows"} 100x150`
	return fault{[]string{entries + used, size}, []string{entries + "70x150", size}}
}

func slow() (f fault) {
	const bucket = `fairlead_proxy_network_programming_duration_seconds_bucket{instance="n1",le=`
	f.with = []string{bucket + `"5"} 0+5x150`, bucket + `"10"} 0+10x150`, bucket + `"+Inf"} 0+10x150`}
	f.without = []string{bucket + `"5"} 0+10x150`, bucket + `"10"} 0+10x150`, bucket + `"+Inf"} 0+10x150`}
	return f
}
