package features

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Table is what Fairlead needs from the kernel. A test compares it with the compiled
// programs, so that nothing is missing here.
var Table = slices.Concat(optional, programs, maps, helpers, network)

// Names of the optional features that components check.
const (
	SocketIterator  = "socket-iterator"
	SocketDestroy   = "socket-destroy"
	PeerName        = "getpeername"
	RefusedErrno    = "connection-refused-errno"
	DropEvents      = "drop-events"
	Capture         = "capture"
	TestRun         = "test-run"
	TCX             = "tcx"
	ConntrackLookup = "conntrack-lookup"
	CongestionMarks = "congestion-marks"
	ResilientGroups = "resilient-next-hop-groups"
	NativeXDP       = "native-xdp"
	NetnsCookie     = "netns-cookie"
	KernelMemory    = "kernel-memory"
	// MapBatches is essential, but only used once there is something to write.
	MapBatches = "map-batches"
)

var allTC = []Component{DSRAgent, PacketProxy, VDN}

var optional = []Feature{
	{
		Name: SocketIterator, Components: []Component{SocketProxy}, Since: "5.9",
		Without: "connected UDP sockets of removed endpoints are found by sock_diag, among the latest 32,768 targets that UDP sockets " +
			"of this node chose; older ones, and those in network namespaces without a name, are not cleaned up",
		Needs: []Need{programType(ebpf.Tracing)},
	},
	{
		Name: SocketDestroy, Components: []Component{SocketProxy}, Since: "4.5",
		Without: "connected UDP sockets of removed endpoints are not cleaned up: such a client sends to an address that no longer answers until it reconnects",
		Needs:   []Need{netlinkNeed("inet-diag-destroy", "SOCK_DESTROY for UDP (CONFIG_INET_UDP_DIAG, CONFIG_INET_DIAG_DESTROY)", probeSocketDestroy)},
	},
	{
		Name: PeerName, Components: []Component{SocketProxy}, Since: "5.8",
		Without: "getpeername returns the endpoint's address instead of the Service's",
		Needs: []Need{
			attachType(ebpf.CGroupSockAddr, ebpf.AttachCgroupInet4GetPeername),
			attachType(ebpf.CGroupSockAddr, ebpf.AttachCgroupInet6GetPeername),
		},
	},
	{
		Name: RefusedErrno, Components: []Component{SocketProxy}, Since: "5.18",
		Without: "clients of a Service without endpoints get EPERM instead of ECONNREFUSED",
		Needs:   []Need{helper("bpf_set_retval", asm.FnSetRetval)},
	},
	{
		Name: DropEvents, Components: []Component{Balancer}, Since: "5.8",
		Without: "`fairlead drops --follow` shows nothing, and IP fragments that arrive before the first one of their datagram are dropped",
		Needs: []Need{
			mapType(ebpf.RingBuf),
			helper("bpf_ringbuf_reserve", asm.FnRingbufReserve),
			helper("bpf_ringbuf_submit", asm.FnRingbufSubmit),
			helper("bpf_ringbuf_discard", asm.FnRingbufDiscard),
		},
	},
	{
		Name: Capture, Components: []Component{Balancer}, Since: "4.8",
		Without: "`fairlead capture` is not available",
		Needs:   []Need{mapType(ebpf.PerfEventArray), helper("bpf_perf_event_output", asm.FnPerfEventOutput)},
	},
	{
		Name: TestRun, Components: []Component{Balancer}, Since: "5.18",
		Without: "`fairlead trace` is not available, and IP fragments that arrive before the first one of their datagram are dropped",
		Needs:   []Need{command("prog_test_run", "BPF_PROG_TEST_RUN", probeTestRun)},
	},
	{
		Name: NativeXDP, Components: []Component{Balancer}, Since: "4.8",
		Without: "packets take the generic XDP path, after the kernel has allocated a socket buffer: forwarding costs several times as much CPU",
		Needs:   []Need{{Kind: "xdpmode", Name: "native", words: "XDP programs in the driver", probe: func(Component) error { return probeNativeXDP() }}},
	},
	{
		Name: TCX, Components: allTC, Since: "6.6", Silent: true,
		Without: "programs are attached by clsact filters, whose order relative to other agents' filters is less well defined",
		Needs:   []Need{tcx(ebpf.AttachTCXIngress), tcx(ebpf.AttachTCXEgress)},
	},
	{
		Name: "clsact", Components: allTC, Since: "4.5", Silent: true,
		Without: "nothing where the kernel has tcx; without both, no program can be attached to a device",
		Needs:   []Need{netlinkNeed("qdisc-clsact", "the clsact queueing discipline", probeClsact)},
	},
	{
		Name: ConntrackLookup, Components: []Component{PacketProxy}, Since: "5.18",
		Without: "connections that kube-proxy established before the service proxy took over may break",
		Needs:   []Need{kfunc("bpf_skb_ct_lookup"), kfunc("bpf_ct_release")},
	},
	{
		Name: CongestionMarks, Components: []Component{DSRAgent}, Since: "5.1",
		Without: "ECN marks that routers put on tunneled packets are not passed on to the backend",
		Needs:   []Need{helper("bpf_skb_ecn_set_ce", asm.FnSkbEcnSetCe)},
	},
	{
		Name: NetnsCookie, Components: []Component{VDN}, Since: "6.15", Silent: true,
		Without: "the network namespace of a frame's socket is read from kernel memory (`kernel-memory`)",
		Needs:   []Need{helper("bpf_get_netns_cookie", asm.FnGetNetnsCookie)},
	},
	{
		Name: KernelMemory, Components: []Component{VDN}, Since: "5.5", Silent: true,
		Without: "nothing where the kernel has `netns-cookie`; without both, frames that a container with CAP_NET_RAW sends past the " +
			"programs at its device (PACKET_QDISC_BYPASS, AF_XDP) are not dropped",
		Needs: []Need{helper("bpf_probe_read_kernel", asm.FnProbeReadKernel)},
	},
	{
		Name: ResilientGroups, Components: []Component{Router}, Since: "5.13",
		Without: "the kernel rehashes all flows when a load balancer joins or leaves; connections survive only where backends find each other's flows (second chance)",
		Needs:   []Need{netlinkNeed("nexthop-resilient", "resilient next-hop groups", probeResilientGroup)},
	},
}

// essential is a row for what every kernel since 6.1 has.
func essential(name, since string, n Need, components ...Component) Feature {
	return Feature{
		Name: name, Since: since, Essential: true, Needs: []Need{n}, Components: components,
		Without: "the component does not start; programs of an earlier agent keep forwarding",
	}
}

func hook(at ebpf.AttachType, name, since string) Feature {
	return essential(name, since, attachType(ebpf.CGroupSockAddr, at), SocketProxy)
}

var programs = []Feature{
	essential("xdp-programs", "4.8", programType(ebpf.XDP), Balancer),
	essential("tc-programs", "4.1", programType(ebpf.SchedCLS), allTC...),
	essential("socket-address-programs", "4.17", programType(ebpf.CGroupSockAddr), SocketProxy),
	hook(ebpf.AttachCGroupInet4Connect, "cgroup-connect4", "4.17"),
	hook(ebpf.AttachCGroupInet6Connect, "cgroup-connect6", "4.17"),
	hook(ebpf.AttachCGroupUDP4Sendmsg, "cgroup-sendmsg4", "4.18"),
	hook(ebpf.AttachCGroupUDP6Sendmsg, "cgroup-sendmsg6", "4.18"),
	hook(ebpf.AttachCGroupUDP4Recvmsg, "cgroup-recvmsg4", "5.2"),
	hook(ebpf.AttachCGroupUDP6Recvmsg, "cgroup-recvmsg6", "5.2"),
	// Before the maps, some of which need it.
	essential("btf-load", "4.18", command("btf_load", "BPF_BTF_LOAD", probeBTF), SocketProxy),
}

var allBPF = []Component{Balancer, DSRAgent, SocketProxy, PacketProxy, VDN}

var maps = []Feature{
	essential("array-maps", "5.5", mapType(ebpf.Array), allBPF...),
	essential("hash-maps", "3.19", mapType(ebpf.Hash), allBPF...),
	essential("per-cpu-array-maps", "4.6", mapType(ebpf.PerCPUArray), Balancer, DSRAgent, PacketProxy, VDN),
	essential("per-cpu-hash-maps", "4.6", mapType(ebpf.PerCPUHash), VDN),
	essential("lru-hash-maps", "4.10", mapType(ebpf.LRUHash), Balancer, DSRAgent, SocketProxy, PacketProxy),
	essential("prefix-tries", "4.11", mapType(ebpf.LPMTrie), Balancer, DSRAgent, SocketProxy, PacketProxy, VDN),
	essential("program-arrays", "4.2", mapType(ebpf.ProgramArray), Balancer),
	essential("arrays-of-maps", "4.12", mapType(ebpf.ArrayOfMaps), Balancer, SocketProxy),
	essential("hashes-of-maps", "4.12", mapType(ebpf.HashOfMaps), Balancer),
	essential("device-maps", "5.4", mapType(ebpf.DevMapHash), Balancer),
	essential("socket-storage", "5.2", mapType(ebpf.SkStorage), SocketProxy),
}

func call(name, since string, fn asm.BuiltinFunc, components ...Component) Feature {
	return essential(name, since, helper(name, fn), components...)
}

var helpers = []Feature{
	call("bpf_map_lookup_elem", "3.19", asm.FnMapLookupElem, allBPF...),
	call("bpf_map_update_elem", "3.19", asm.FnMapUpdateElem, allBPF...),
	call("bpf_map_delete_elem", "3.19", asm.FnMapDeleteElem, SocketProxy, PacketProxy),
	call("bpf_ktime_get_ns", "4.1", asm.FnKtimeGetNs, Balancer, VDN),
	call("bpf_ktime_get_coarse_ns", "5.11", asm.FnKtimeGetCoarseNs, Balancer, DSRAgent, SocketProxy, PacketProxy),
	call("bpf_jiffies64", "5.6", asm.FnJiffies64, Balancer),
	call("bpf_get_prandom_u32", "4.1", asm.FnGetPrandomU32, Balancer, SocketProxy, PacketProxy),
	call("bpf_get_smp_processor_id", "4.1", asm.FnGetSmpProcessorId, Balancer),
	call("bpf_tail_call", "4.2", asm.FnTailCall, Balancer),
	call("bpf_loop", "5.17", asm.FnLoop, Balancer, SocketProxy, PacketProxy),
	call("bpf_fib_lookup", "4.18", asm.FnFibLookup, Balancer, DSRAgent, PacketProxy),
	call("bpf_check_mtu", "5.12", asm.FnCheckMtu, Balancer),
	call("bpf_csum_diff", "4.6", asm.FnCsumDiff, Balancer, DSRAgent, PacketProxy),
	call("bpf_redirect_map", "4.14", asm.FnRedirectMap, Balancer),
	call("bpf_xdp_adjust_head", "4.10", asm.FnXdpAdjustHead, Balancer),
	call("bpf_xdp_adjust_tail", "4.18", asm.FnXdpAdjustTail, Balancer),
	call("bpf_xdp_get_buff_len", "5.18", asm.FnXdpGetBuffLen, Balancer),
	call("bpf_xdp_load_bytes", "5.18", asm.FnXdpLoadBytes, Balancer),
	call("bpf_xdp_store_bytes", "5.18", asm.FnXdpStoreBytes, Balancer),
	call("bpf_redirect", "4.4", asm.FnRedirect, PacketProxy),
	call("bpf_redirect_neigh", "5.10", asm.FnRedirectNeigh, DSRAgent, PacketProxy),
	call("bpf_l4_csum_replace", "4.1", asm.FnL4CsumReplace, DSRAgent, PacketProxy),
	call("bpf_skb_adjust_room", "4.13", asm.FnSkbAdjustRoom, DSRAgent, PacketProxy),
	call("bpf_skb_change_head", "4.10", asm.FnSkbChangeHead, PacketProxy),
	call("bpf_skb_change_tail", "4.9", asm.FnSkbChangeTail, PacketProxy),
	call("bpf_skb_change_proto", "4.8", asm.FnSkbChangeProto, DSRAgent),
	call("bpf_skb_load_bytes", "4.5", asm.FnSkbLoadBytes, allTC...),
	call("bpf_skb_store_bytes", "4.1", asm.FnSkbStoreBytes, DSRAgent, PacketProxy),
	call("bpf_skb_pull_data", "4.9", asm.FnSkbPullData, DSRAgent, PacketProxy),
	call("bpf_spin_lock", "5.1", asm.FnSpinLock, DSRAgent),
	call("bpf_spin_unlock", "5.1", asm.FnSpinUnlock, DSRAgent),
	call("bpf_get_netns_cookie", "5.7", asm.FnGetNetnsCookie, SocketProxy),
	call("bpf_get_socket_cookie", "4.17", asm.FnGetSocketCookie, SocketProxy),
	call("bpf_sk_storage_get", "5.2", asm.FnSkStorageGet, SocketProxy),
	call("bpf_sk_storage_delete", "5.2", asm.FnSkStorageDelete, SocketProxy),
}

var network = []Feature{
	essential(MapBatches, "5.6", command("map_update_batch", "BPF_MAP_UPDATE_BATCH and BPF_MAP_LOOKUP_BATCH", probeBatch), Balancer),
	essential("bpf-links", "5.9", command("link_create", "BPF_LINK_CREATE", probeLinks), Balancer, SocketProxy),
	essential("next-hop-objects", "5.3", netlinkNeed("nexthop", "next-hop objects (ip nexthop)", probeNextHop), Router),
	essential("htb", "2.4", netlinkNeed("qdisc-htb", "the HTB packet scheduler (CONFIG_NET_SCH_HTB)", probeHTB), VDN),
	essential("ipvs", "2.6", netlinkNeed("generic:ipvs", "IPVS (CONFIG_IP_VS, module ip_vs)", probeIPVS), IPVSBalancer),
}
