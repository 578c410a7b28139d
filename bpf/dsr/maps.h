/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The configuration and counters of the DSR agent: the backends of this node, and the
 * outcome of packets. bpf2go generates these types for Go (dataplane/dsr). The flow
 * table is in flows.h.
 *
 * A change of a type or map requires a new layout: give it the next number, and
 * define the migration from the previous one (dataplane/dsr/layout.go).
 */
#ifndef FAIRLEAD_DSR_MAPS_H
#define FAIRLEAD_DSR_MAPS_H

#include "addr.h"
#include "common.h"
#include "hash.h"
#include "parse.h"

enum server_method {
	SERVER_METHOD_TUNNEL = 1,
	SERVER_METHOD_DIRECT_NAT = 2,
	SERVER_METHOD_DR = 3,
} __attribute__((packed));

/* Where a backend runs, which decides the program that handles it: to_server at a
 * pod's device, or to_host at the node's ingress. A packet for a pod passes both and
 * must be changed by only one.
 */
enum server_place {
	SERVER_PLACE_POD = 1,
	SERVER_PLACE_HOST = 2,
} __attribute__((packed));

/* A frontend with a backend on this node, by the fields of its packets:
 *
 *   tunnel      vip:vip_port inside, backend outside; the outer header has no backend
 *               port, so server_port is 0
 *   dsr-nat     server:server_port, and vip:vip_port in the option
 *   dr          only vip:vip_port: server and server_port are 0
 *
 * A row without ports is for later fragments, which have none, and for a frontend
 * with a port range; proto 0 is for one with all protocols.
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
	struct addr server;  /* as the load balancer knows it; with dr it is not in the key */
	struct addr deliver; /* its address in the VIP's family */
	__be16 port;	     /* the backend's port; 0: the client's destination port */
	__u16 first, last;   /* of a range, host order; 0 and 0: only for fragments */
	enum server_method method;
	enum server_place place;
	__u64 left; /* removal time, CLOCK_MONOTONIC in ns: serves until its flows end; or 0 */
};

/* Outcomes of packets. Those before SERVER_COUNTER_PASSED_FOREIGN_TUNNEL count
 * completed work, PASSED_ packets continued unmodified for a reason, DROPPED_ packets
 * were dropped.
 */
enum server_counter {
	SERVER_COUNTER_TUNNEL_DELIVERED,
	SERVER_COUNTER_DSR_NAT_DELIVERED,
	SERVER_COUNTER_DR_DELIVERED,
	SERVER_COUNTER_FRAGMENT_DELIVERED, /* later ones; the first counts for its mode */
	SERVER_COUNTER_ERROR_DELIVERED,	   /* an ICMP error about a packet from the backend */
	SERVER_COUNTER_RESTORED_STRAIGHT,  /* sent out by the program */
	SERVER_COUNTER_RESTORED_PASSED,	   /* left to the kernel's forwarding */
	SERVER_COUNTER_FRAGMENT_RESTORED,
	SERVER_COUNTER_ERROR_RESTORED, /* an ICMP error about a packet from the client */
	SERVER_COUNTER_SECOND_CHANCE,  /* forwarded to the next backend of its list */
	SERVER_COUNTER_SHORTCUT,       /* passed to a pod's device */
	SERVER_COUNTER_FLOW_MADE,
	SERVER_COUNTER_FLOW_EVICTED,	       /* replaced by another flow before its timeout */
	SERVER_COUNTER_FLOW_FORGOTTEN,	       /* replaced by a direct connection on its ports */
	SERVER_COUNTER_SKIPPED_UNKNOWN_SERVER, /* listed, but no backend of the frontend */
	SERVER_COUNTER_ACCEPTED_NO_AUTH_TAG,   /* while tags are not required */
	SERVER_COUNTER_ACCEPTED_WRONG_AUTH_TAG,
	SERVER_COUNTER_PASSED_FOREIGN_TUNNEL,
	SERVER_COUNTER_PASSED_FOREIGN_OPTION,
	SERVER_COUNTER_PASSED_FOREIGN_ERROR,
	SERVER_COUNTER_PASSED_OUTER_FRAGMENT, /* the tunnel's own: reassembled by the kernel */
	SERVER_COUNTER_PASSED_FRAGMENT,	      /* a later one, of no known packet */
	SERVER_COUNTER_PASSED_MALFORMED,
	SERVER_COUNTER_PASSED_BUNDLE,	/* several encapsulated packets in one frame */
	SERVER_COUNTER_PASSED_TOO_BIG,	/* the kernel informs the backend */
	SERVER_COUNTER_PASSED_TTL,	/* the kernel informs the sender */
	SERVER_COUNTER_DROPPED_REWRITE, /* the kernel rejected a change */
	SERVER_COUNTER_DROPPED_NO_WAY_TO_SECOND,
	SERVER_COUNTER_DROPPED_COLLISION, /* another VIP's flow has the same ports there */
	SERVER_COUNTER_DROPPED_FLOWS_FULL,
	SERVER_COUNTER_DROPPED_SOURCE_DENIED,	 /* client outside the source ranges */
	SERVER_COUNTER_DROPPED_UNKNOWN_BALANCER, /* encapsulated by an unknown load balancer */
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

/* Permitted next backends: all backends of the frontends that have one here. The key
 * is that of the backend's row on its own node.
 */
struct next_server {
	__u64 left;  /* as in struct local_vip */
	__be16 port; /* the backend's port in a range; 0: the client's destination port */
	__u8 zero[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct local_vip_key);
	__type(value, struct next_server);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} next_servers SEC(".maps");

/* Whether next_servers is populated. It is not yet if an agent takes over from a
 * version without it. Set by the agent.
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

/* Finds the row of a packet, whose ports are in k. A range's row is used if no port
 * has its own row.
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

/* The rows last used by this CPU: a lookup with a 40-byte key costs more than all
 * other lookups together. A change of the rows invalidates them all.
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

/* Counts changes of local_vips, by the agent. 0 disables this cache. */
volatile __u32 rows_generation = 0;

static __always_inline bool key_is(const struct local_vip_key *a, const struct local_vip_key *b)
{
	const addr_half *x = (const addr_half *)a, *y = (const addr_half *)b;

	/* Reads the end in the sizes in which it was written, to avoid a
	 * store-forwarding stall.
	 */
	return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) |
		(a->vip_port ^ b->vip_port) | (a->server_port ^ b->server_port) |
		(a->proto ^ b->proto)) == 0;
}

/* find_row with a cache. k is aligned to eight bytes. */
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

/* Finds the row for a packet without ports. */
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
