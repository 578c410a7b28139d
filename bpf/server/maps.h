/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the server half is told and what it counts: the servers of this node,
 * and what became of packets. Go gets these types by bpf2go
 * (dataplane/dsr). What it remembers of flows is in flows.h.
 *
 * Changing a type or a map means a new layout: give it the next number and say
 * how the one before is carried over (dataplane/dsr/layout.go).
 */
#ifndef FAIRLEAD_SERVER_MAPS_H
#define FAIRLEAD_SERVER_MAPS_H

#include "addr.h"
#include "common.h"
#include "hash.h"
#include "parse.h"

enum server_method {
	SERVER_METHOD_TUNNEL = 1,
	SERVER_METHOD_DIRECT_NAT = 2,
	SERVER_METHOD_DR = 3,
} __attribute__((packed));

/* Where a server lives, which says who serves it: to_server at a device that
 * leads to a pod, or to_host at the node's own way in. A packet for a pod
 * passes both and must be changed by one only.
 */
enum server_place {
	SERVER_PLACE_POD = 1,
	SERVER_PLACE_HOST = 2,
} __attribute__((packed));

/* A frontend at a server of this node, by what a packet for it says:
 *
 *   tunnel      vip:vip_port inside, server outside; no outer header has the
 *               server's port, so server_port is 0
 *   dsr-nat  server:server_port, and vip:vip_port in the option
 *   dr          vip:vip_port alone: server and server_port are 0
 *
 * A row with no ports is for what has none, the later fragments of a packet,
 * and for a frontend of a range of ports; proto 0 for one of every protocol.
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
	struct addr server;  /* as the balancer knows it; with dr the key does not tell */
	struct addr deliver; /* its address in the VIP's family */
	__be16 port;	     /* the server's port; 0: the one that the client addressed */
	__u16 first, last;   /* of a range, host order; 0 and 0: for fragments alone */
	enum server_method method;
	enum server_place place;
	__u64 left; /* when it was taken out of the plan, CLOCK_MONOTONIC
		     * in ns: it serves until its flows have ended; or 0 */
};

/* What became of packets. Those before SERVER_COUNTER_PASSED_FOREIGN_TUNNEL
 * are work done, the PASSED_ ones went on untouched for a reason, the DROPPED_
 * ones ended here.
 */
enum server_counter {
	SERVER_COUNTER_TUNNEL_DELIVERED,
	SERVER_COUNTER_DSR_NAT_DELIVERED,
	SERVER_COUNTER_DR_DELIVERED,
	SERVER_COUNTER_FRAGMENT_DELIVERED, /* later ones; the first is counted by its method */
	SERVER_COUNTER_ERROR_DELIVERED,	   /* an ICMP error about what the server sent */
	SERVER_COUNTER_RESTORED_STRAIGHT,  /* sent out by the program */
	SERVER_COUNTER_RESTORED_PASSED,	   /* left to the kernel's forwarding */
	SERVER_COUNTER_FRAGMENT_RESTORED,
	SERVER_COUNTER_ERROR_RESTORED, /* an ICMP error about what the client sent */
	SERVER_COUNTER_SECOND_CHANCE,  /* sent on to the next server of its list */
	SERVER_COUNTER_SHORTCUT,       /* handed to a pod's device */
	SERVER_COUNTER_FLOW_MADE,
	SERVER_COUNTER_FLOW_EVICTED,	       /* another took its place before its time was over */
	SERVER_COUNTER_FLOW_FORGOTTEN,	       /* a direct connection took its ports */
	SERVER_COUNTER_SKIPPED_UNKNOWN_SERVER, /* listed, but no server of the frontend */
	SERVER_COUNTER_ACCEPTED_NO_AUTH_TAG,   /* while tags are not required */
	SERVER_COUNTER_ACCEPTED_WRONG_AUTH_TAG,
	SERVER_COUNTER_PASSED_FOREIGN_TUNNEL,
	SERVER_COUNTER_PASSED_FOREIGN_OPTION,
	SERVER_COUNTER_PASSED_FOREIGN_ERROR,
	SERVER_COUNTER_PASSED_OUTER_FRAGMENT, /* a tunnel's own: the server's kernel has it */
	SERVER_COUNTER_PASSED_FRAGMENT,	      /* a later one, of no packet that is known */
	SERVER_COUNTER_PASSED_MALFORMED,
	SERVER_COUNTER_PASSED_BUNDLE,	/* several tunnelled packets in one frame */
	SERVER_COUNTER_PASSED_TOO_BIG,	/* the kernel tells the server */
	SERVER_COUNTER_PASSED_TTL,	/* likewise */
	SERVER_COUNTER_DROPPED_REWRITE, /* the kernel refused a change */
	SERVER_COUNTER_DROPPED_NO_WAY_TO_SECOND,
	SERVER_COUNTER_DROPPED_COLLISION, /* the server has a flow of these ports by another VIP */
	SERVER_COUNTER_DROPPED_FLOWS_FULL,
	SERVER_COUNTER_DROPPED_SOURCE_DENIED, /* the client is outside the frontend's source ranges
					       */
	SERVER_COUNTER_DROPPED_UNKNOWN_BALANCER, /* tunnelled by no known balancer */
	SERVER_COUNTER_DROPPED_NO_AUTH_TAG,
	SERVER_COUNTER_DROPPED_WRONG_AUTH_TAG,
	SERVER_COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct local_vip_key);
	__type(value, struct local_vip);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} local_vips SEC(".maps");

/* Who a packet may be sent on to: all servers of the frontends that have one
 * here. The key is that of the server's row at its own node.
 */
struct next_server {
	__u64 left;  /* as in struct local_vip */
	__be16 port; /* the server's port in a range; 0: the one that the client addressed */
	__u8 zero[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct local_vip_key);
	__type(value, struct next_server);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} next_servers SEC(".maps");

/* Whether next_servers is written: it is not yet where an agent takes over from
 * one of a version without it. The agent sets it.
 */
volatile __u32 next_servers_known = 1;

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

static __always_inline int pass(enum server_counter why)
{
	count(why);
	return TC_ACT_UNSPEC;
}

static __always_inline int drop(enum server_counter why)
{
	count(why);
	return TC_ACT_SHOT;
}

/* The row for a packet; k's ports are the packet's. A range's row is looked for
 * where no port has one of its own.
 */
static __noinline struct local_vip *find_row(struct local_vip_key *k)
{
	struct local_vip *row = bpf_map_lookup_elem(&local_vips, k);
	__u16 port = bpf_ntohs(k->vip_port);
	struct local_vip_key whole;

	if (row)
		return row;
	whole = *k;
	whole.vip_port = 0;
	whole.server_port = 0;
	row = bpf_map_lookup_elem(&local_vips, &whole);
	if (row && row->last && port >= row->first && port <= row->last)
		return row;
	whole.proto = 0;
	row = bpf_map_lookup_elem(&local_vips, &whole);
	return row && row->last && port >= row->first && port <= row->last ? row : NULL;
}

/* The rows that this CPU used last: a look-up by 40 bytes costs more than all
 * else that is looked up. A change of the rows makes them all stale.
 */
#define ROWS_KEPT 256

struct kept_row {
	struct local_vip_key key;
	__u32 generation;
	__u32 zero;
	struct local_vip row;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct kept_row);
	__uint(max_entries, ROWS_KEPT);
} kept_rows SEC(".maps");

/* Counts changes of local_vips; the agent's. 0 keeps nothing. */
volatile __u32 rows_generation = 0;

static __always_inline bool key_is(const struct local_vip_key *a, const struct local_vip_key *b)
{
	const addr_half *x = (const addr_half *)a, *y = (const addr_half *)b;

	/* The end in the pieces in which it is written: a CPU waits for it else. */
	return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) |
		(a->vip_port ^ b->vip_port) | (a->server_port ^ b->server_port) |
		(a->proto ^ b->proto)) == 0;
}

/* find_row, from memory where it can. k lies at a multiple of eight. */
static __always_inline struct local_vip *find_kept_row(struct local_vip_key *k)
{
	__u32 generation = rows_generation;
	__u32 i = (k->vip.word[3] ^ k->server.word[3] * 31 ^ (k->vip_port | k->server_port << 16)) *
			  (__u32)HASH_K0 >>
		  24;
	struct kept_row *kept = bpf_map_lookup_elem(&kept_rows, &i);
	struct local_vip *row;

	if (kept && generation && kept->generation == generation && key_is(&kept->key, k))
		return &kept->row;
	row = find_row(k);
	if (row && kept && generation) {
		kept->row = *row;
		kept->key = *k;
		kept->generation = generation;
	}
	return row;
}

/* The row for what has no ports. */
static __always_inline struct local_vip *find_address_row(const struct addr *vip,
							  const struct addr *server, __u8 proto)
{
	struct local_vip_key k = {.vip = *vip, .server = *server, .proto = proto};
	struct local_vip *row = bpf_map_lookup_elem(&local_vips, &k);

	if (row)
		return row;
	k.proto = 0;
	return bpf_map_lookup_elem(&local_vips, &k);
}

#endif
