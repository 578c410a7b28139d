package privilege

// Roles of Fairlead processes. A process may have several; see For.
const (
	Balancer       = "balancer"
	Takeover       = "balancer, restarted"
	BalancerLayer2 = "balancer, --l2-interfaces"
	BalancerIPVS   = "balancer, --dataplane ipvs"
	OwnBPFFS       = "agent, --bpffs to mount"
	DSR            = "dsr"
	Proxy          = "proxy"
	Router         = "router"
	RouterListens  = "router, --listen-range"
	Reflector      = "reflector"
	Controller     = "controller"
	VDN            = "vdn"
	VDNNode        = "vdn node"
	Cleanup        = "cleanup"
	CleanupVDN     = "cleanup, of vdn node"
	CNI            = "fairlead-cni"
)

// Table lists every role and its needs, and is the only source for them: warnings about
// missing capabilities, `fairlead doctor`, the chart, the systemd units and
// docs/security.md are tested against it, and lab/e2e/privileges runs each role with
// exactly these capabilities and then without each of them.
var Table = []Role{
	{Balancer, "fairlead agent", []Need{
		{NetAdmin, "attaches XDP programs to interfaces, and sets sysctls"},
		{BPF, "loads BPF programs and maps"},
		{Perfmon, "loads programs that compare and subtract packet pointers"},
	}},
	{Takeover, "fairlead agent, after another", []Need{
		{SysAdmin, "opens a predecessor's maps inside maps, by their IDs; includes CAP_BPF and CAP_PERFMON"},
	}},
	{BalancerLayer2, "fairlead agent --l2-interfaces", []Need{
		{NetRaw, "answers ARP and neighbor discovery on packet sockets"},
	}},
	{BalancerIPVS, "fairlead agent --dataplane ipvs", []Need{
		{NetAdmin, "writes virtual services, addresses and sysctls"},
	}},
	{OwnBPFFS, "fairlead agent --bpffs", []Need{
		{SysAdmin, "mounts a BPF file system where --bpffs names none"},
	}},
	{DSR, "fairlead agent --role dsr", []Need{
		{NetAdmin, "attaches tc programs to interfaces, and sets sysctls"},
		{BPF, "loads BPF programs and maps"},
		{Perfmon, "loads programs that compare and subtract packet pointers"},
	}},
	{Proxy, "fairlead agent --role proxy", []Need{
		{NetAdmin, "attaches programs to cgroups and interfaces, and ends UDP sockets"},
		{SysAdmin, "enters the pods' network namespaces to end UDP sockets whose endpoint is gone; includes CAP_BPF and CAP_PERFMON"},
	}},
	{Router, "fairlead router", []Need{
		{NetAdmin, "writes routes, next hops and sysctls"},
	}},
	{RouterListens, "fairlead router --listen-range", []Need{
		{NetBindService, "listens on BGP's port, 179"},
	}},
	{Reflector, "fairlead reflector", []Need{
		{NetBindService, "listens on BGP's port, 179"},
	}},
	{Controller, "fairlead controller", nil},
	{VDN, "fairlead vdn", nil},
	{VDNNode, "fairlead vdn agent", []Need{
		{NetAdmin, "attaches tc programs and queues to interfaces"},
		{SysAdmin, "enters the pods' network namespaces; includes CAP_BPF and CAP_PERFMON"},
	}},
	{Cleanup, "fairlead cleanup", []Need{
		{NetAdmin, "takes programs off interfaces, and puts sysctls back"},
	}},
	{CleanupVDN, "fairlead cleanup, after fairlead vdn agent", []Need{
		{SysAdmin, "enters the network namespaces of pods on virtual networks"},
	}},
	{CNI, "fairlead-cni", []Need{
		{NetAdmin, "makes and moves devices, and sets addresses and routes"},
		{NetRaw, "asks by ARP and neighbor discovery whether an address is in use"},
		{SysAdmin, "enters the pods' network namespaces"},
	}},
}
