package router

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/sysctl"
)

// hashFields are source and destination address, protocol and both ports, the bits 0x37
// of fib_multipath_hash_fields (Linux ip-sysctl.rst), without the IPv6 flow label, which
// a sender may change.
const hashFields = "55"

// hashSeed exists since Linux 6.11; one for both families.
const hashSeed = "ipv4/fib_multipath_hash_seed"

// RouterSysctls returns the settings that a router needs in the calling thread's
// namespace. Routers with the same seed hash alike: a flow that moves to another router
// reaches the load balancer that it had. With seed 0, the kernel keeps its own seed,
// which no other machine has.
func RouterSysctls(seed uint32) ([]sysctl.Setting, error) {
	const (
		forward = "a router forwards"
		policy  = "with policy 1 the sender's random hash selects the path: flows move to other load balancers although no route changes"
		fields  = "addresses, protocol and ports select the path: connections of one client are spread, too"
	)
	settings := []sysctl.Setting{
		{Path: "ipv4/ip_forward", Value: "1", Why: forward},
		{Path: "ipv4/fib_multipath_hash_policy", Value: "3", Why: policy},
		{Path: "ipv4/fib_multipath_hash_fields", Value: hashFields, Why: fields},
		{Path: "ipv6/conf/all/forwarding", Value: "1", Why: forward},
		{Path: "ipv6/fib_multipath_hash_policy", Value: "3", Why: policy},
		{Path: "ipv6/fib_multipath_hash_fields", Value: hashFields, Why: fields},
	}
	if seed == 0 {
		return settings, nil
	}
	if sysctl.Read(hashSeed) == "" {
		return nil, fmt.Errorf("hash seed %d: this kernel lacks net.ipv4.fib_multipath_hash_seed (Linux 6.11): omit the seed; several routers may then send one flow to different load balancers", seed)
	}
	return append(settings, sysctl.Setting{Path: hashSeed, Value: fmt.Sprint(seed), Why: "all routers use the same hash"}), nil
}
