package ipvs

import "github.com/fairlead/fairlead/internal/sysctl"

// sysctls are what a load balancer's namespace needs
// (Documentation/networking/ipvs-sysctl.rst).
var sysctls = []sysctl.Setting{
	{Path: "ipv4/ip_forward", Value: "1", Why: "with method nat answers are forwarded from servers to clients"},
	{Path: "ipv6/conf/all/forwarding", Value: "1", Why: "with method nat answers are forwarded from servers to clients"},
	{Path: "ipv4/vs/conn_reuse_mode", Value: "1", Why: "a new connection from a port that had one before is balanced anew, and not sent to a server that drains or is gone"},
	{Path: "ipv4/vs/expire_nodest_conn", Value: "1", Why: "a flow whose server is removed ends at its next packet, and does not vanish there until it times out"},
	{Path: "ipv4/vs/expire_quiescent_template", Value: "1", Why: "a client whose server drains gets another one for its next connection, affinity or not"},
	{Path: "ipv4/vs/sloppy_tcp", Value: "1", Why: "connections that another balancer had go on here, when routing brings their packets"},
	{Path: "ipv4/vs/sloppy_sctp", Value: "1", Why: "associations that another balancer had go on here, when routing brings their packets"},
	{Path: "ipv4/vs/schedule_icmp", Value: "1", Why: "an ICMP error about a flow that another balancer had finds its server here"},
}

// tracking makes IPVS connections known to masquerading.
var tracking = []sysctl.Setting{
	{Path: "ipv4/vs/conntrack", Value: "1", Why: "with method fullnat iptables changes the source of what IPVS sends"},
}
