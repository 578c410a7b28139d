package fib

import "github.com/fairlead/fairlead/internal/sysctl"

// hashFields are source and destination address, protocol and both ports, the
// bits 0x37 of fib_multipath_hash_fields (Linux' ip-sysctl.rst), without the
// IPv6 flow label, which a sender may change.
const hashFields = "55"

// RouterSysctls are what a router must have set.
func RouterSysctls() []sysctl.Setting {
	const (
		forward = "a router forwards"
		policy  = "with policy 1 the sender's random hash chooses the way: flows change their balancer though no route changed"
		fields  = "both addresses, the protocol and both ports choose the way: connections of one client spread too"
	)
	return []sysctl.Setting{
		{Path: "ipv4/ip_forward", Value: "1", Why: forward},
		{Path: "ipv4/fib_multipath_hash_policy", Value: "3", Why: policy},
		{Path: "ipv4/fib_multipath_hash_fields", Value: hashFields, Why: fields},
		{Path: "ipv6/conf/all/forwarding", Value: "1", Why: forward},
		{Path: "ipv6/fib_multipath_hash_policy", Value: "3", Why: policy},
		{Path: "ipv6/fib_multipath_hash_fields", Value: hashFields, Why: fields},
	}
}
