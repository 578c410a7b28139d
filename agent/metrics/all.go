package metrics

import (
	"cmp"
	"strings"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/internal/exposition"
	"github.com/fairlead/fairlead/internal/histogram"
)

// All lists the metrics in the order of docs/metrics.md.
var All = []Metric{
	{"fairlead_build_info", "Always 1. The labels identify the release, the role and the node.", []string{"version", "role", "node"}, false, func(s *status.Status, emit emit) {
		emit(1, s.Version, s.Role, s.Node)
	}},
	{"fairlead_config_errors", "Errors in the configuration, such as rejected manifests and conflicts, listed by fairlead status.", nil, false, func(s *status.Status, emit emit) {
		emit(float64(s.ConfigErrors()))
	}},
	{"fairlead_reconcile_errors_total", "Calls that failed while the desired state was applied. They are retried.", nil, true, func(s *status.Status, emit emit) {
		if s.DataPlane != nil || s.ServiceProxy != nil || s.DSRAgent != nil {
			emit(float64(s.ReconcileErrors()))
		}
	}},
	{"fairlead_stale_objects", "Objects whose last change is rejected, so that the previous version is in use, listed by fairlead status.", nil, false, func(s *status.Status, emit emit) {
		emit(float64(len(s.Stale)))
	}},
	{"fairlead_degraded", "Optional kernel features that are unavailable on this node, by cause. Omitted if all are available. " +
		"fairlead status shows the consequences.", []string{"feature", "reason"}, false, degraded},
	ofPeers("fairlead_bgp_session_up", "1 if the BGP session with the peer is established, else 0.", false,
		func(p *advertise.Peer) float64 { return exposition.Bool(p.State == advertise.Established) }),
	ofPeers("fairlead_bgp_advertised_prefixes", "Prefixes currently advertised to the peer.", false,
		func(p *advertise.Peer) float64 { return float64(p.Sent) }),
	ofPeers("fairlead_bgp_received_prefixes", "Prefixes currently received from the peer.", false,
		func(p *advertise.Peer) float64 { return float64(p.Received) }),
	ofPeers("fairlead_bgp_sent_updates_total", "BGP UPDATE messages sent to the peer.", true,
		func(p *advertise.Peer) float64 { return float64(p.UpdatesSent) }),
	ofPeers("fairlead_bgp_received_updates_total", "BGP UPDATE messages received from the peer.", true,
		func(p *advertise.Peer) float64 { return float64(p.UpdatesReceived) }),
	ofPeers("fairlead_bgp_session_flaps_total", "Established sessions with the peer that ended.", true,
		func(p *advertise.Peer) float64 { return float64(p.Flaps) }),
	{"fairlead_bfd_session_up", "1 if the BFD session with the peer is up, else 0. Omitted without BFD.", []string{"peer"}, false, func(s *status.Status, emit emit) {
		for i := range s.Peers {
			if p := &s.Peers[i]; p.BFD != "" && p.BFD != "off" {
				emit(exposition.Bool(p.BFD == "up"), nameOf(p))
			}
		}
	}},
	{"fairlead_routes", "Routes, by whether they are advertised (a router: in the kernel).", []string{"advertised"}, false, func(s *status.Status, emit emit) {
		yes := 0
		for _, r := range s.Routes {
			if r.Advertised {
				yes++
			}
		}
		emit(float64(yes), "true")
		emit(float64(len(s.Routes)-yes), "false")
	}},
	{"fairlead_withdrawing_routes", "Withdrawn routes whose withdrawal a BGP peer, a cloud or a layer-2 member has not confirmed. Their frontends stay programmed.",
		nil, false, func(s *status.Status, emit emit) {
			if s.DataPlane != nil {
				emit(float64(s.WithdrawingPrefixes()))
			}
		}},
	{"fairlead_fib_degraded_prefixes", "Prefixes whose route in the router's kernel is not as received: a next hop or the route is rejected. fairlead status names each.",
		nil, false, func(s *status.Status, emit emit) {
			if s.Role == status.RoleRouter {
				emit(float64(s.DegradedPrefixes()))
			}
		}},
	{"fairlead_drain_stage", "1 for the current drain stage of the load balancer, 0 for the others. All are 0 if it is not draining.", []string{"stage"}, false, drainStages},
	{"fairlead_drain_flows", "Tracked flows of a draining load balancer. Omitted if it is not draining.", nil, false, func(s *status.Status, emit emit) {
		if s.Drain != nil {
			emit(float64(s.Drain.Flows))
		}
	}},
	{"fairlead_services", "Number of Services.", nil, false, func(s *status.Status, emit emit) { emit(float64(len(s.Services))) }},
	{"fairlead_frontends", "Frontends by state.", []string{"state"}, false, func(s *status.Status, emit emit) {
		count := tally{}
		for _, svc := range s.Services {
			for _, f := range svc.Frontends {
				count[string(f.State)]++
			}
		}
		count.emit(emit)
	}},
	{"fairlead_backends", "Backends of frontends, by health.", []string{"health"}, false, func(s *status.Status, emit emit) {
		count := tally{}
		for _, svc := range s.Services {
			for _, f := range svc.Frontends {
				for _, b := range f.Backends {
					count[b.Health]++
				}
			}
		}
		count.emit(emit)
	}},
	{"fairlead_drained_backends", "Backends of frontends that operators drain (fairlead drain --backend).", nil, false, func(s *status.Status, emit emit) {
		if s.DataPlane == nil {
			return
		}
		n := 0
		for _, svc := range s.Services {
			for _, f := range svc.Frontends {
				for _, b := range f.Backends {
					if b.Quarantine != nil {
						n++
					}
				}
			}
		}
		emit(float64(n))
	}},
	ofServices("fairlead_service_packets_total", "Packets to the backends of a Service.", func(f *status.Frontend) uint64 { return f.Counts.Packets }),
	ofServices("fairlead_service_bytes_total", "Bytes of these packets, as received from clients.", func(f *status.Frontend) uint64 { return f.Counts.Bytes }),
	ofServices("fairlead_service_flows_total", "New flows of a Service.", func(f *status.Frontend) uint64 { return f.Counts.Flows }),
	{"fairlead_service_syn_protection_active", "Frontends of a Service that are currently protected against a SYN flood.", []string{"service"}, false, synProtection},
	{"fairlead_service_syn_protection_packets_total", "Packets handled by SYN flood protection, by outcome (docs/services.md). " +
		"Omitted if there was no flood.", []string{"service", "event"}, true, synEvents},
	{"fairlead_dropped_packets_total", "Packets dropped by the load balancer, by reason (docs/troubleshooting.md).", []string{"reason"}, true, func(s *status.Status, emit emit) {
		if s.DataPlane != nil {
			tally(s.DataPlane.Drops).emit(emit)
		}
	}},
	{"fairlead_table_entries", "Entries in use of a table in the kernel. Flow tables are counted every 30 seconds, the DSR agent's at each request.", []string{"table"}, false, func(s *status.Status, emit emit) {
		for _, t := range s.Tables {
			emit(float64(t.Used), t.Name)
		}
	}},
	{"fairlead_table_max_entries", "Size of a table in the kernel.", []string{"table"}, false, func(s *status.Status, emit emit) {
		for _, t := range s.Tables {
			emit(float64(t.Size), t.Name)
		}
	}},
	{"fairlead_l2_addresses", "Addresses on layer 2, by state: owner if this node answers, standby if another node does, else the reason.", []string{"state"}, false, func(s *status.Status, emit emit) {
		count := tally{}
		for _, r := range s.Routes {
			if r.Layer2 != nil {
				count[r.Layer2.State]++
			}
		}
		count.emit(emit)
	}},
	{"fairlead_l2_address_owned", "1 for each address for which this node answers on layer 2.", []string{"address"}, false, func(s *status.Status, emit emit) {
		for _, r := range s.Routes {
			if r.Layer2 != nil && r.Layer2.State == "owner" {
				emit(1, r.Prefix.Addr().String())
			}
		}
	}},
	{"fairlead_dsr_tracked_flows", "Flows tracked by the DSR agent.", nil, false, func(s *status.Status, emit emit) {
		if s.DSRAgent != nil {
			emit(float64(s.DSRAgent.Flows))
		}
	}},
	{"fairlead_dsr_packets_total", "Packets at the DSR agent, by outcome.", []string{"outcome"}, true, func(s *status.Status, emit emit) {
		if s.DSRAgent != nil {
			tally(s.DSRAgent.Counters).emit(emit)
		}
	}},
	{"fairlead_dsr_known_senders", "Load balancers from which backends accept tunneled packets. Omitted if all senders are accepted.", nil, false, func(s *status.Status, emit emit) {
		if s.DSRAgent != nil && s.DSRAgent.ChecksSenders {
			emit(float64(len(s.DSRAgent.Senders)))
		}
	}},
	ofProxy("fairlead_proxy_services", "Services of the service proxy.", false, func(p *status.ServiceProxy) float64 { return float64(p.Services) }),
	ofProxy("fairlead_proxy_frontends", "Frontends of the service proxy.", false, func(p *status.ServiceProxy) float64 { return float64(p.Frontends) }),
	ofProxy("fairlead_proxy_unwritten_frontends", "Frontends of the service proxy that are not yet programmed as desired.", false, func(p *status.ServiceProxy) float64 { return float64(p.Unwritten) }),
	ofProxy("fairlead_proxy_changes_total", "Changes received from the cluster.", true, func(p *status.ServiceProxy) float64 { return float64(p.Changes) }),
	ofProxy("fairlead_proxy_last_sync_timestamp_seconds", "Time of the last complete synchronization, in seconds since 1970.", false, func(p *status.ServiceProxy) float64 { return float64(p.LastSync.UnixMilli()) / 1000 }),
	{"fairlead_proxy_dropped_packets_total", "Packets dropped by the service proxy, by reason.", []string{"reason"}, true, func(s *status.Status, emit emit) {
		if s.ServiceProxy != nil {
			tally(s.ServiceProxy.Drops).emit(emit)
		}
	}},
}

// Backends lists the metrics of backends, which are exported only on request.
var Backends = []Metric{
	ofBackends("fairlead_backend_up", "1 if the backend passes its health check or has none, else 0.", false,
		func(b *status.Backend) float64 { return exposition.Bool(b.Passes()) }),
	ofBackends("fairlead_backend_packets_total", "Packets to a backend. With XDP, frontends that share a backend have the same counters of it.", true,
		func(b *status.Backend) float64 { return float64(b.Counts.Packets) }),
	ofBackends("fairlead_backend_bytes_total", "Bytes of these packets, as received from clients.", true,
		func(b *status.Backend) float64 { return float64(b.Counts.Bytes) }),
	ofBackends("fairlead_backend_flows_total", "New flows to a backend.", true,
		func(b *status.Backend) float64 { return float64(b.Counts.Flows) }),
}

// Histograms lists the histograms.
var Histograms = []Distribution{
	{"fairlead_reconcile_duration_seconds", "Duration of a reconciliation of the load balancer and the DSR agent with the kernel.",
		func(s *status.Status) *histogram.Histogram { return s.ReconcileDurations }},
	{"fairlead_probe_duration_seconds", "Duration of successful health checks.", func(s *status.Status) *histogram.Histogram { return s.ProbeDurations }},
	{"fairlead_proxy_network_programming_duration_seconds", "Time from the notification of a change until it is programmed.", func(s *status.Status) *histogram.Histogram {
		if s.ServiceProxy == nil {
			return nil
		}
		return &s.ServiceProxy.Delays
	}},
}

// nameOf returns a peer's configured name, or its address.
func nameOf(p *advertise.Peer) string { return cmp.Or(p.Name, p.Address) }

// ofPeers omits unknown peers: otherwise anyone who connects could choose the values of a
// label.
func ofPeers(name, help string, counter bool, read func(*advertise.Peer) float64) Metric {
	return Metric{name, help, []string{"peer"}, counter, func(s *status.Status, emit emit) {
		for i := range s.Peers {
			if s.Peers[i].Unconfigured {
				continue
			}
			emit(read(&s.Peers[i]), nameOf(&s.Peers[i]))
		}
	}}
}

func ofServices(name, help string, read func(*status.Frontend) uint64) Metric {
	return Metric{name, help, []string{"service"}, true, func(s *status.Status, emit emit) {
		if s.DataPlane == nil {
			return // does not apply
		}
		for i := range s.Services {
			sum := uint64(0)
			for j := range s.Services[i].Frontends {
				sum += read(&s.Services[i].Frontends[j])
			}
			emit(float64(sum), s.Services[i].ID)
		}
	}}
}

func ofBackends(name, help string, counter bool, read func(*status.Backend) float64) Metric {
	return Metric{name, help, []string{"service", "frontend", "backend"}, counter, func(s *status.Status, emit emit) {
		for i := range s.Services {
			for j := range s.Services[i].Frontends {
				f := &s.Services[i].Frontends[j]
				if f.State == plan.Conflict { // the frontend is another Service's
					continue
				}
				for k := range f.Backends {
					emit(read(&f.Backends[k]), s.Services[i].ID, f.Key(), f.Backends[k].Address.String())
				}
			}
		}
	}}
}

// synProtection counts the frontends of each Service that are currently protected.
func synProtection(s *status.Status, emit emit) {
	if s.DataPlane == nil {
		return
	}
	for _, svc := range s.Services {
		active := 0
		for _, f := range svc.Frontends {
			if f.SYNProtected() {
				active++
			}
		}
		emit(float64(active), svc.ID)
	}
}

func synEvents(s *status.Status, emit emit) {
	for _, svc := range s.Services {
		events := map[string]uint64{}
		for _, f := range svc.Frontends {
			if f.SYNFlood == nil {
				continue
			}
			for event, n := range f.SYNFlood.Events() {
				events[event] += n
			}
		}
		for event, n := range events {
			emit(float64(n), svc.ID, event)
		}
	}
}

func ofProxy(name, help string, counter bool, read func(*status.ServiceProxy) float64) Metric {
	return Metric{name, help, nil, counter, func(s *status.Status, emit emit) {
		if s.ServiceProxy != nil {
			emit(read(s.ServiceProxy))
		}
	}}
}

// drainStages emits every possible stage.
func drainStages(s *status.Status, emit emit) {
	if !strings.Contains(s.Role, "balancer") {
		return
	}
	for _, stage := range []plan.Stage{plan.Deferred, plan.Notifying, plan.GracefulShutdown, plan.Withdrawn, plan.Drained} {
		emit(exposition.Bool(s.Drain != nil && s.Drain.Stage == stage), string(stage))
	}
}

// tally counts by label.
type tally map[string]uint64

func (t tally) emit(emit emit) {
	for label, n := range t {
		emit(float64(n), label)
	}
}

// degraded counts degraded features by reason: several components or interfaces may have
// the same.
func degraded(s *status.Status, emit emit) {
	type refusal struct{ feature, reason string }
	count := map[refusal]int{}
	for _, d := range s.Degraded {
		count[refusal{d.Feature, d.Reason}]++
	}
	for r, n := range count {
		emit(float64(n), r.feature, r.reason)
	}
}
