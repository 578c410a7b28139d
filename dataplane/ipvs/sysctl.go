package ipvs

import "github.com/fairlead/fairlead/internal/sysctl"

// sysctls are what a load balancer's namespace needs
// (Documentation/networking/ipvs-sysctl.rst).
var sysctls = []sysctl.Setting{
	{Path: "ipv4/ip_forward", Value: "1", Why: "forwarding mode nat: replies are forwarded from backends to clients"},
	{Path: "ipv6/conf/all/forwarding", Value: "1", Why: "forwarding mode nat: replies are forwarded from backends to clients"},
	{Path: "ipv4/vs/conn_reuse_mode", Value: "1", Why: "a new connection from a reused source port is scheduled again, not sent to a backend that drains or is removed"},
	{Path: "ipv4/vs/expire_nodest_conn", Value: "1", Why: "a flow whose backend is removed ends at its next packet instead of being dropped until it times out"},
	{Path: "ipv4/vs/expire_quiescent_template", Value: "1", Why: "a client whose backend drains gets another one for its next connection, even with affinity"},
	{Path: "ipv4/vs/sloppy_tcp", Value: "1", Why: "TCP connections of another load balancer continue here when routing moves their packets"},
	{Path: "ipv4/vs/sloppy_sctp", Value: "1", Why: "SCTP associations of another load balancer continue here when routing moves their packets"},
	{Path: "ipv4/vs/schedule_icmp", Value: "1", Why: "an ICMP error about a flow of another load balancer reaches its backend"},
}

// tracking makes IPVS connections known to masquerading.
var tracking = []sysctl.Setting{
	{Path: "ipv4/vs/conntrack", Value: "1", Why: "forwarding mode fullnat: iptables changes the source address of forwarded packets"},
}
