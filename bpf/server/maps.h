/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the server half remembers: the servers of this node, the flows they
 * have, and what happened. Go gets these types by bpf2go (dataplane/serverhalf).
 */
#ifndef FAIRLEAD_SERVER_MAPS_H
#define FAIRLEAD_SERVER_MAPS_H

#include "addr.h"
#include "common.h"
#include "parse.h"

enum server_method {
	SERVER_METHOD_TUNNEL = 1,
	SERVER_METHOD_DIRECT_NAT = 2,
};

/* Where a server lives, which says who serves it: to_server at a device that
 * leads to a pod, or to_host at the node's own way in. A packet for a pod
 * passes both and must be changed by one only.
 */
enum server_place {
	SERVER_PLACE_POD = 1,
	SERVER_PLACE_HOST = 2,
};

/* A frontend at a server of this node. In the tunnel server is the outer
 * destination and server_port is zero, because no outer header has one: so a
 * VIP:port has one server on an address. With direct-nat both are what the
 * packet is addressed to.
 *
 * A row with no VIP (zero address and port) is a direct-nat target: it says
 * that a packet to server:server_port may ask for a second chance.
 */
struct local_vip_key {
	struct addr vip;
	struct addr server;
	__be16 vip_port;
	__be16 server_port;
	__u8 proto;
	__u8 zero[3];
};

struct local_vip {
	struct addr deliver; /* the server's address in the VIP's family; in a
			      * target row the only VIP of that target, or zero */
	__be16 port;	     /* the server's port; in a target row the VIP's */
	__u16 zero;
	enum server_method method;
	enum server_place place;
	__u32 zero2;
	__u64 left; /* when it was taken out of the plan, CLOCK_MONOTONIC
		     * in ns: it serves until its flows have ended; or 0 */
};

/* The key of a flow is a struct tuple: client to server, as the server sees it. */
struct server_flow {
	struct addr vip;
	__be16 vip_port;
	__u8 overhead; /* bytes that the balancer may add to each packet */
	__u8 zero;
	enum server_method method;
	__u64 seen; /* CLOCK_MONOTONIC in ns, exact to a second */
};

/* What became of packets. Those before SERVER_COUNTER_PASSED_FOREIGN_TUNNEL
 * are work done, the PASSED_ ones went on untouched for a reason, the DROPPED_
 * ones ended here.
 */
enum server_counter {
	SERVER_COUNTER_TUNNEL_DELIVERED,
	SERVER_COUNTER_DIRECT_NAT_DELIVERED,
	SERVER_COUNTER_RESTORED_STRAIGHT, /* sent out by the program */
	SERVER_COUNTER_RESTORED_PASSED,	  /* left to the kernel's forwarding */
	SERVER_COUNTER_SECOND_CHANCE,	  /* sent on to the second server */
	SERVER_COUNTER_SHORTCUT,	  /* handed to a pod's device */
	SERVER_COUNTER_FLOW_MADE,
	SERVER_COUNTER_FLOW_FORGOTTEN, /* a direct connection took its ports */
	SERVER_COUNTER_PASSED_FOREIGN_TUNNEL,
	SERVER_COUNTER_PASSED_FOREIGN_OPTION,
	SERVER_COUNTER_PASSED_FRAGMENT,
	SERVER_COUNTER_PASSED_MALFORMED,
	SERVER_COUNTER_PASSED_TOO_BIG,	/* the kernel tells the server */
	SERVER_COUNTER_PASSED_TTL,	/* likewise */
	SERVER_COUNTER_DROPPED_REWRITE, /* the kernel refused a change */
	SERVER_COUNTER_DROPPED_NO_WAY_TO_SECOND,
	SERVER_COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct local_vip_key);
	__type(value, struct local_vip);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} local_vips SEC(".maps");

/* The size is the agent's to choose. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct tuple);
	__type(value, struct server_flow);
	__uint(max_entries, 262144);
} server_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, enum server_counter);
	__type(value, __u64);
	__uint(max_entries, SERVER_COUNTERS);
} server_counters SEC(".maps");

static __always_inline void count(enum server_counter what)
{
	__u64 *n = bpf_map_lookup_elem(&server_counters, &what);

	if (n)
		(*n)++;
}

#endif
