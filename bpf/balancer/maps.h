/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the agent tells the balancer. Every type here is generated into Go. The
 * sizes are replaced by the agent before it loads. Maps that only one step
 * uses stand in that step's header.
 *
 *   frontends --id--> frontend_counts
 *       |
 *   segment, slot, slots --> rings[segment][slot ...] --server id--> servers, server_cpu
 *                                        |
 *                                        +--chain--> chains
 *
 * Another release finds these maps pinned. If the type of one of them changes, its
 * version in dataplane/xdp/state.go does, too (docs/upgrade.md).
 */
#ifndef FAIRLEAD_BALANCER_MAPS_H
#define FAIRLEAD_BALANCER_MAPS_H

#include "addr.h"
#include "common.h"
#include "parse.h"

enum layout {
	LAYOUT = 3, /* in the name of the folder of pins, for good */
};

/* Packed: of one byte, and yet named in Go. */
enum method {
	METHOD_NONE = 0, /* of a whole address: nothing else of the VIP is served */
	METHOD_FULLNAT = 1,
	METHOD_DIRECT_NAT = 2,
	METHOD_TUNNEL = 3,
	METHOD_NAT = 4,
	METHOD_DR = 5,
} __attribute__((packed));

enum encapsulation {
	ENCAPSULATION_NONE = 0,
	ENCAPSULATION_IPIP = 1,
	ENCAPSULATION_GUE = 2,
} __attribute__((packed));

enum scheduler {
	SCHEDULER_MAGLEV = 1,
	SCHEDULER_RR = 2,
	SCHEDULER_WRR = 3,
	SCHEDULER_LC = 4,
	SCHEDULER_WLC = 5,
	SCHEDULER_SH = 6,
	SCHEDULER_DH = 7,
	SCHEDULER_P2C = 8,
} __attribute__((packed));

enum survival {
	SURVIVAL_NONE = 0,
	SURVIVAL_SECOND_CHANCE = 1,
	SURVIVAL_FLOW_TABLE = 2,
} __attribute__((packed));

/* Why a packet was dropped. Users see the names, in lower case, with dashes
 * and without DROP_. New ones go before DROP_REASONS.
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
	DROP_NO_HEADROOM,    /* the driver leaves no room before the frame */
	DROP_NO_FRONTEND,    /* to a VIP, but to no frontend */
	DROP_NO_NEIGHBOUR,   /* dr: the server's MAC address is not known, or a router is between */
	DROP_FULL,	     /* all servers have as many connections as they may */
	DROP_SOURCE_DENIED,  /* the client is outside the frontend's source ranges */
	DROP_RATE_LIMITED,   /* more than the frontend's limits allow */
	DROP_SOURCE_ROUTE,   /* the sender chooses the routers (IPv4 option, IPv6 routing header) */
	DROP_TINY_FRAGMENT,  /* a fragment that splits or overwrites the transport header */
	DROP_FRAGMENT_LOST,  /* a later fragment whose first has not come in time */
	DROP_FLOWS_FULL,     /* the flow table has no place for one more */
	DROP_FLOW_BUSY,	     /* other CPUs were at its set of the flow table all the time */
	DROP_SCTP_FRAGMENT,  /* another port, and a checksum over more than is here */
	DROP_UNKNOWN_BALANCER, /* handed over by, or to be handed to, no known balancer */
	DROP_NO_AUTH_TAG,      /* handed over without an authentication tag */
	DROP_WRONG_AUTH_TAG,   /* or with one that is not right */
	DROP_SYN_COOKIE,       /* under pressure: an ACK of no known flow, without a valid cookie */
	DROP_SYN_ODD,	       /* under pressure: IP options, extension headers or fragments */
	DROP_SYN_FLOW_LOST, /* how a connection's sequence numbers differ is not known any more */
	DROP_REASONS,
};

/* Entries of drops: more than there are reasons, so that a new reason leaves the
 * map's size, and with it the layout of the pinned maps, as it is.
 */
#define DROP_ROOM 64

/* In a packet's flags, where another balancer has handed it over: whether yet
 * another may know its flow. ADMITTED: the program syn has let it pass.
 */
#define PACKET_ADMITTED 0x20
#define PACKET_ASK 0x40
#define PACKET_LAST 0x80

typedef __u32 may_alias_u32 __attribute__((may_alias));
typedef __u64 may_alias_u64 __attribute__((may_alias));

/* Port and protocol zero: the whole address. Every VIP has such an entry,
 * METHOD_NONE where nothing else of it is served.
 */
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

enum frontend_flags {
	FRONTEND_STATEFUL = 1,	   /* flows are remembered here: stateful.h */
	FRONTEND_GUARDED = 2,	   /* source ranges or limits: policy.h */
	FRONTEND_CLIENT_HASH = 4,  /* the slot is by the client's address alone: affinity, sh */
	FRONTEND_VIP_HASH = 8,	   /* the slot is by the VIP alone: dh */
	FRONTEND_KEEP_PORT = 16,   /* a range: servers have no port of their own */
	FRONTEND_SYN_GUARDED = 32, /* under pressure: syn.h */
	FRONTEND_SYN_CHECKED = 64, /* nat, fullnat: ACKs may have cookies */
};

struct frontend {
	__u32 id;      /* of its counters */
	__u32 segment; /* index in rings */
	__u32 slot;    /* the first of its slots there */
	__u32 slots;   /* how many */
	enum frontend_flags flags;
	enum method method;
	enum encapsulation encapsulation;
	enum scheduler scheduler;
	enum survival survival;
	__u32 ring_size; /* as asked for, which is not always the slots */
	__u32 affinity;	 /* seconds, 0: none */
	__u32 ranges;	 /* of a whole address: how many port ranges this VIP has ... */
	__u32 range;	 /* ... and the first of them in port_ranges */
	__u32 turn;	 /* rr, wrr: whose turn it is */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct frontend_key);
	__type(value, struct frontend);
} frontends SEC(".maps");

/* Ports of a VIP that are one frontend, both ends included, in host order. A
 * VIP's lie side by side: they are written anew elsewhere, and the entry of the
 * whole address then names the new place.
 */
struct port_range {
	__u16 first;
	__u16 last;
	__u8 proto;
	__u8 zero[3];
	struct frontend f;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port_range);
} port_ranges SEC(".maps");

/* Which addresses may be VIPs or our own: one bit for each value of the first
 * bits of addr_hash, set for every VIP and every own address. Where it is clear
 * the packet is not ours.
 */
#define VIP_BITS_SHIFT 12
#define VIP_BITS_WORDS (1 << (32 - VIP_BITS_SHIFT - 6))

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, VIP_BITS_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} vip_bits SEC(".maps");

/* One slot of a ring, written and read as one word: a server id, 0 for none,
 * and who else may have the slot's older flows: an index in chains, 0 for
 * nobody. With lc and wlc the slots are the servers in order of their
 * addresses, and chain is the weight.
 */
struct ring_slot {
	__u32 first;
	__u32 chain;
};

/* Rings lie one behind the other in segments of one size, so that finding a
 * slot is no call; none goes over the end of its segment. User space maps a
 * segment and changes slots in place.
 */
#define SEGMENT_SLOTS (1 << 18)

struct ring_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SEGMENT_SLOTS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct ring_slot));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__array(values, struct ring_segment);
} rings SEC(".maps");

/* Who may have older flows of a slot, newest first: endpoints as the Fairlead
 * option carries them (option.h), ready to copy. sum is of the bytes as 16-bit
 * words as they lie there, folded, for the checksum of IPv4's header.
 */
#define CHAIN_MAX 5
#define CHAIN_BYTES 92

struct chain {
	__u8 n;	 /* endpoints */
	__u8 v6; /* 18 bytes each, not 6 */
	__u16 sum;
	__u8 bytes[CHAIN_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chain);
} chains SEC(".maps");

/* One server: shared by all stateless frontends that have it. A frontend that
 * remembers flows has entries of its own, so that a server that leaves ends
 * that one's flows alone. Ids start at 1.
 */
struct server {
	struct addr addr;
	__u32 generation; /* counts the owners of this id: flows of an earlier one are void */
	__u32 frontend;	  /* 0: shared; else its frontend's id + 1 */
	__be16 port;
	__u8 used;	 /* the id is somebody's */
	__u8 drains;	 /* of a frontend that remembers flows: takes no new ones */
	__u32 max_conns; /* connections at a time, 0: no limit */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

/* What a CPU keeps of a server, by its id: the way there, as the kernel's
 * tables said in this tick of its clock, and what it has been sent. One cache
 * line.
 */
struct server_cpu {
	__u64 tick;
	__u32 generation; /* of the server */
	__u32 ingress;	  /* interface, by index: the packet's, and where it is to leave */
	__u32 ifindex;
	__u32 mtu;
	__u8 macs[12] __attribute__((aligned(4))); /* as in an Ethernet header */
	__u32 beyond;				   /* there is a router between */
	__u64 packets;
	__u64 bytes;
	__u64 flows;
};

_Static_assert(sizeof(struct server_cpu) == 64, "one cache line");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct server_cpu);
} server_cpu SEC(".maps");

/* Which frontend has which server: the agent's own, read back by a later one. */
struct member_key {
	__u32 frontend; /* ids */
	__u32 server;
};

struct member {
	__u32 weight; /* 0: draining */
	__u32 max_conns;
	__u64 since; /* the backend's, nanoseconds of Unix time */
	__u8 held;   /* the change that brought it is complete */
	__u8 zero[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct member_key);
	__type(value, struct member);
} members SEC(".maps");

/* What the agent can change at any time, through the map of this section. */
struct settings {
	enum layout layout;
	struct addr own4; /* sources of tunnels and of fullnat; zero: none */
	struct addr own6;
	__u16 port_first; /* of fullnat's source ports, host order */
	__u16 port_count;
	__u16 gue_port; /* host order */
	__u16 zero;
	__u32 nat;	      /* some frontend has the method nat */
	__u32 sample;	      /* which drops are told: a mask for a count, ~0: none */
	__u32 draining_peers; /* how many balancers are to be asked for flows */
};

struct settings set SEC(".data.settings") = {.layout = LAYOUT, .gue_port = 6080, .sample = ~0u};

/* The interfaces that the agent has attached this program to: the ones a
 * packet may be redirected to, by their index. A bond's members, where its
 * packets come in, lead to the bond.
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
	__uint(max_entries, DROP_ROOM);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

/* Where a packet goes on in a program of its own: from there nothing is fast.
 * A step that is not there leaves the packet to the kernel.
 */
enum step {
	STEP_SLOW_PATH = 0,
	STEP_HANDOVER = 1,
	STEP_SYN = 2,
	STEPS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, enum step);
	__type(value, __u32);
} steps SEC(".maps");

/* Set before loading where an interface of ours is a veth. On a veth XDP_TX
 * wakes the other end only where that has an XDP program too (veth_xdp_flush
 * in Linux' drivers/net/veth.c); a redirect needs no more than its NAPI.
 */
volatile const bool back_by_redirect = false;

#endif
