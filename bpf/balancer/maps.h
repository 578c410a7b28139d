/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the agent tells the balancer, and what the balancer remembers. Every
 * type here is generated into Go. The sizes are replaced by the agent before
 * it loads.
 *
 *   frontends --id--> frontend_counts
 *       |
 *      ring --> rings[ring] --> slots --server id--> servers, server_counts
 *
 * Changing a type or a map means a new layout: LAYOUT below, which is part of
 * the name of the folder of pins.
 */
#ifndef FAIRLEAD_BALANCER_MAPS_H
#define FAIRLEAD_BALANCER_MAPS_H

#include "addr.h"
#include "common.h"
#include "parse.h"

enum layout {
	LAYOUT = 2,
};

enum method {
	METHOD_NONE = 0, /* of a whole address: nothing else of the VIP is served */
	METHOD_FULLNAT = 1,
	METHOD_DIRECT_NAT = 2,
	METHOD_TUNNEL = 3,
};

enum scheduler {
	SCHEDULER_MAGLEV = 1,
	SCHEDULER_RR = 2,
};

/* Why a packet was dropped. Users see the names, in lower case, with dashes
 * and without DROP_.
 */
enum drop_reason {
	DROP_MALFORMED,	     /* lengths inside the packet do not fit */
	DROP_NO_BACKEND,     /* the ring has nobody for it */
	DROP_NO_SOURCE,	     /* no own address of the family that is needed */
	DROP_NO_ROUTE,	     /* the kernel's routes forbid the way to the server */
	DROP_TOO_BIG,	     /* larger than the MTU with what the method adds */
	DROP_TTL_EXPIRED,    /* a server's answer that came too far */
	DROP_MARTIAN_SOURCE, /* a client address that nobody can have */
	DROP_NO_PORT,	     /* fullnat: no free source port toward the server */
	DROP_NO_ROOM,	     /* the driver leaves no room before the frame */
	DROP_NOT_SERVED,     /* to a VIP, but to no frontend */
	DROP_REASONS,
};

typedef __u32 may_alias_u32 __attribute__((may_alias));

/* Port and protocol zero: the whole address. Every VIP has such an entry. */
struct frontend_key {
	struct addr vip;
	__be16 port;
	__u8 proto;
	__u8 zero;
};

/* Key and vip lie at multiples of eight. In the words that the kernel reads the
 * key by, as in addr.h.
 */
static __always_inline void frontend_key_set(struct frontend_key *key, const struct addr *vip,
					     __be16 port, __u8 proto)
{
	addr_copy_aligned(&key->vip, vip);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	*(may_alias_u32 *)&key->port = port | (__u32)proto << 16;
#else
	*(may_alias_u32 *)&key->port = (__u32)port << 16 | (__u32)proto << 8;
#endif
}

struct frontend {
	__u32 id;	 /* of its counters, and the mark on its servers */
	__u32 ring;	 /* index in rings */
	__u32 slots;	 /* in that ring */
	__u32 ring_size; /* as asked for, which with rr is not the slots */
	enum method method;
	enum scheduler scheduler;
	__u32 turn; /* rr: whose turn it is */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct frontend_key);
	__type(value, struct frontend);
} frontends SEC(".maps");

/* One slot of a ring: server ids, 0 for none. second may hold older flows of
 * this slot, where first has not always been its owner.
 */
struct ring_slot {
	__u32 first;
	__u32 second;
};

/* Rings have different sizes, and one that changes is a new one put in the
 * place of the old.
 */
struct ring {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct ring_slot));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* One backend of one frontend. Ids start at 1. */
struct server {
	struct addr addr;
	__u32 frontend;	  /* id */
	__u32 weight;	  /* 0: draining */
	__u32 generation; /* counts the owners of this id: flows of an earlier one are void */
	__be16 port;
	__u8 used; /* the id is somebody's */
	__u8 held; /* the change that brought it is complete */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

/* The way to a server by tunnel, by server id: what the kernel's tables said in
 * this tick of its clock, on this CPU.
 */
struct kept_way {
	__u64 tick;
	__u32 generation; /* of the server */
	__u32 ingress;	  /* interface, by index: the packet's, and where it is to leave */
	__u32 ifindex;
	__u32 mtu;
	__u8 macs[12] __attribute__((aligned(4))); /* as in an Ethernet header */
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kept_way);
} kept_ways SEC(".maps");

enum flow_state {
	FLOW_OPENING = 0,
	FLOW_ESTABLISHED = 1,
	FLOW_CLOSING = 2,
	FLOW_UDP = 3,
};

/* A remembered flow. rr remembers the server; fullnat also what the packet
 * becomes, once for each direction: the tuple `to` the other way round is the
 * key of the other direction's entry.
 */
struct flow {
	struct tuple to;
	__u32 server;
	__u32 generation; /* of the server */
	__u32 expires;	  /* seconds of the coarse clock */
	__u8 state;	  /* enum flow_state */
	__u8 back;	  /* fullnat: from the server to the client */
	__u8 zero[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct tuple);
	__type(value, struct flow);
} flows SEC(".maps");

/* What the agent can change at any time. */
struct settings {
	enum layout layout;
	struct addr own4; /* sources of tunnels and of fullnat; zero: none */
	struct addr own6;
	__u16 port_first; /* of fullnat's source ports, host order */
	__u16 port_count;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* The interfaces that the agent has attached this program to: the ones a
 * packet may be redirected to, by their index.
 */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} tx_ports SEC(".maps");

struct counts {
	__u64 packets;
	__u64 bytes;
	__u64 flows;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} frontend_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} server_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DROP_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

/* Set before loading where an interface of ours is a veth. On a veth XDP_TX
 * wakes the other end only where that has an XDP program too (veth_xdp_flush
 * in Linux' drivers/net/veth.c); a redirect needs no more than its NAPI.
 */
volatile const bool back_by_redirect = false;

#endif
