/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps through which the agent configures the load balancer. Every type here is
 * generated into Go. The agent replaces the sizes before loading. Maps that only
 * one step uses are in that step's header.
 *
 *   frontends --id--> frontend_counts
 *       |
 *   segment, slot, slots --> rings[segment][slot ...] --server id--> servers, server_cpu
 *                                        |
 *                                        +--chain--> chains
 *
 * Other releases find these maps pinned. If a map's type changes, change its
 * version in dataplane/xdp/state.go too (docs/upgrade.md).
 */
#ifndef FAIRLEAD_BALANCER_MAPS_H
#define FAIRLEAD_BALANCER_MAPS_H

#include "addr.h"
#include "common.h"
#include "parse.h"

enum layout {
	LAYOUT = 3, /* part of the pin directory's name, permanent */
};

/* Packed to one byte, yet a named type in Go. */
enum method {
	METHOD_NONE = 0, /* for a whole address: the VIP serves nothing else */
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
	/* The same with a narrow ring (struct ring_slot). A release that does not know
	 * these does not use such a frontend's entry (docs/upgrade.md).
	 */
	SCHEDULER_NARROW = 16,
	SCHEDULER_NARROW_MAGLEV = 17,
	SCHEDULER_NARROW_SH = 22,
	SCHEDULER_NARROW_DH = 23,
} __attribute__((packed));

enum survival {
	SURVIVAL_NONE = 0,
	SURVIVAL_SECOND_CHANCE = 1,
	SURVIVAL_FLOW_TABLE = 2,
} __attribute__((packed));

/* Why a packet was dropped. Users see the names in lower case, with dashes and
 * without DROP_. Add new reasons before DROP_REASONS.
 */
enum drop_reason {
	DROP_MALFORMED,	     /* inconsistent lengths inside the packet */
	DROP_NO_BACKEND,     /* the ring has no backend for it */
	DROP_NO_SOURCE,	     /* no own address of the required family */
	DROP_NO_ROUTE,	     /* the kernel's routes forbid forwarding to the backend */
	DROP_TOO_BIG,	     /* exceeds the MTU with the forwarding mode's overhead */
	DROP_TTL_EXPIRED,    /* a backend's reply with an expired TTL */
	DROP_MARTIAN_SOURCE, /* an impossible client address */
	DROP_NO_PORT,	     /* fullnat: no free source port to the backend */
	DROP_NO_HEADROOM,    /* the driver leaves no room before the frame */
	DROP_NO_FRONTEND,    /* to a VIP, but to no frontend */
	DROP_NO_NEIGHBOR,   /* dr: the backend's MAC address is unknown, or it is behind a router */
	DROP_FULL,	    /* all backends are at their connection limit */
	DROP_SOURCE_DENIED, /* the client is outside the frontend's source ranges */
	DROP_RATE_LIMITED,  /* above the frontend's rate limits */
	DROP_SOURCE_ROUTE,  /* the sender selects the routers (IPv4 option, IPv6 routing header) */
	DROP_TINY_FRAGMENT, /* a fragment that splits or overwrites the transport header */
	DROP_FRAGMENT_LOST, /* a later fragment whose first one did not arrive in time */
	DROP_FLOWS_FULL,    /* the flow table has no free entry */
	DROP_FLOW_BUSY,	    /* other CPUs kept its flow table set locked */
	DROP_SCTP_FRAGMENT, /* SCTP: the checksum covers data beyond this fragment */
	DROP_UNKNOWN_BALANCER, /* handed over from or to an unknown load balancer */
	DROP_NO_AUTH_TAG,      /* handed over without an authentication tag */
	DROP_WRONG_AUTH_TAG,   /* handed over with an invalid one */
	DROP_SYN_COOKIE,       /* under pressure: an ACK of no known flow, without a valid cookie */
	DROP_SYN_ODD,	       /* under pressure: IP options, extension headers or fragments */
	DROP_SYN_FLOW_LOST,    /* the connection's sequence number offset is no longer known */
	DROP_REASONS,
};

/* Entries in drops. Larger than the number of reasons, so that a new reason does
 * not change the map size and thus the layout of the pinned maps.
 */
#define DROP_ROOM 64

/* Packet flags for a handover from another load balancer: whether yet another one
 * may know the flow. ADMITTED: the syn program has let it pass.
 */
#define PACKET_ADMITTED 0x20
#define PACKET_ASK 0x40
#define PACKET_LAST 0x80

typedef __u32 may_alias_u32 __attribute__((may_alias));
typedef __u64 may_alias_u64 __attribute__((may_alias));

/* Port and protocol zero stand for the whole address. Every VIP has such an entry,
 * with METHOD_NONE if it serves nothing else.
 */
struct frontend_key {
	struct addr vip;
	__be16 port;
	__u8 proto;
	__u8 zero;
};

/* Key and vip are aligned to eight bytes. Written in the word sizes with which the
 * kernel reads the key, as in addr.h.
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
	FRONTEND_STATEFUL = 1,	   /* tracks flows here: stateful.h */
	FRONTEND_GUARDED = 2,	   /* has source ranges or rate limits: policy.h */
	FRONTEND_CLIENT_HASH = 4,  /* hashes only the client address: affinity, sh */
	FRONTEND_VIP_HASH = 8,	   /* hashes only the VIP: dh */
	FRONTEND_KEEP_PORT = 16,   /* a port range: backends have no port */
	FRONTEND_SYN_GUARDED = 32, /* under pressure: syn.h */
	FRONTEND_SYN_CHECKED = 64, /* nat, fullnat: ACKs may have cookies */
};

struct frontend {
	__u32 id;      /* of its counters */
	__u32 segment; /* index in rings */
	__u32 slot;    /* its first entry there */
	__u32 slots;   /* how many */
	enum frontend_flags flags;
	enum method method;
	enum encapsulation encapsulation;
	enum scheduler scheduler;
	enum survival survival;
	__u32 ring_size; /* the configured size, which may differ from slots */
	__u32 affinity;	 /* seconds, 0: none */
	__u32 ranges;	 /* whole address: number of this VIP's port ranges ... */
	__u32 range;	 /* ... and the first one in port_ranges */
	__u32 turn;	 /* rr, wrr: next backend */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct frontend_key);
	__type(value, struct frontend);
} frontends SEC(".maps");

/* A range of a VIP's ports that is one frontend, bounds included, in host order. A
 * VIP's ranges are contiguous. To change them, the agent writes a new copy
 * elsewhere and then points the whole address entry to it.
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

/* Addresses that may be VIPs or our own: one bit for each value of the first bits
 * of addr_hash, set for every VIP and own address. If the bit is clear, the packet
 * is not ours.
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

/* One ring slot, read and written as one word: a server id (0: none), and an index
 * in chains (0: none) of other backends that may have the slot's older flows. For
 * lc and wlc the slots are the backends in address order, and chain is the weight.
 */
struct ring_slot {
	__u32 first;
	__u32 chain;
};

/* Rings are packed into segments of one size, so that finding a slot needs no call.
 * No ring crosses the end of its segment. User space maps a segment and changes
 * slots in place.
 *
 * The slots of a narrow ring are bytes, eight to an entry and filled up with zeros. Each
 * is an index into the list of the ring's different entries, which follows.
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

/* Backends that may have older flows of a slot, newest first: endpoints as the
 * Fairlead option carries them (option.h), ready to copy. sum is the folded sum of
 * the bytes as 16-bit words in memory order, for the IPv4 header checksum.
 */
#define CHAIN_MAX 5
#define CHAIN_BYTES 92

struct chain {
	__u8 n;	 /* number of endpoints */
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

/* One backend, shared by all stateless frontends that use it. A frontend that
 * tracks flows has separate entries, so that a removed backend ends only the flows
 * of that frontend. Ids start at 1.
 */
struct server {
	struct addr addr;
	__u32 generation; /* counts the owners of this id: flows of earlier owners are void */
	__u32 frontend;	  /* 0: shared; else its frontend's id + 1 */
	__be16 port;
	__u8 used;	 /* the id is in use */
	__u8 drains;	 /* with flow tracking: accepts no new flows */
	__u32 max_conns; /* concurrent connections, 0: unlimited */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

/* A cached next hop (egress.h). */
struct next_hop {
	__u64 tick;	  /* the last one of the clock for which it is cached */
	__u32 generation; /* of the backend, plus routes_version */
	__u32 ingress;	  /* interface index on which the packet arrived; ifindex: egress */
	__u32 ifindex;
	__u32 mtu;
	__u8 macs[12] __attribute__((aligned(4))); /* as in an Ethernet header */
	__u32 beyond;				   /* behind a router */
};

/* Per-CPU state of a backend, by id: its next hop, and counters of sent packets. One
 * cache line.
 */
struct server_cpu {
	struct next_hop hop;
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

/* Which backends each frontend has: the agent's own record, which the next agent reads
 * back (dataplane/xdp/backendlist). A list is a run of words in a segment. Frontends with
 * the same list share it. To change a list, the agent writes another one elsewhere, and
 * then switches the frontend's word in member_index: length << 32 | position, 0 for none.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} member_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__array(values, struct ring_segment);
} member_lists SEC(".maps");

/* The same for builds that have no lists, as long as there are few backends
 * (dataplane/xdp/backendlist).
 */
struct member_key {
	__u32 frontend; /* ids */
	__u32 server;
};

struct member {
	__u32 weight; /* 0: draining */
	__u32 max_conns;
	__u64 since; /* the backend's, nanoseconds of Unix time */
	__u8 held;   /* the change that added it is complete */
	__u8 zero[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct member_key);
	__type(value, struct member);
} members SEC(".maps");

/* Which memory of a packet's flow is read before its frontend is known (flow_recent.h):
 * some if a frontend with tunnels tracks flows.
 */
enum early {
	EARLY_NOTHING = 0,
	EARLY_COPY = 1,
	EARLY_SET = 2, /* there are too many flows for copies */
} __attribute__((packed));

/* Settings that the agent can change at any time, through this section's map. */
struct settings {
	enum layout layout;
	struct addr own4; /* sources of tunnels and of fullnat; zero: none */
	struct addr own6;
	__u16 port_first; /* of fullnat's source ports, host order */
	__u16 port_count;
	__u16 gue_port; /* host order */
	enum early early;
	__u8 zero;
	__u32 nat;	      /* some frontend uses nat */
	__u32 sample;	      /* which drops are reported: a mask for a count, ~0: none */
	__u32 draining_peers; /* number of load balancers to query for flows */
};

struct settings set SEC(".data.settings") = {.layout = LAYOUT, .gue_port = 6080, .sample = ~0u};

/* Interfaces to which the agent attached this program, by index: packets may be
 * redirected only to these. Members of a bond that receive its packets map to the
 * bond.
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

/* Programs that continue a packet off the fast path. If a step is missing, the
 * packet goes to the kernel.
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

/* Set before loading if one of our interfaces is a veth. XDP_TX on a veth wakes the
 * peer only if that has an XDP program too (veth_xdp_flush in Linux
 * drivers/net/veth.c). A redirect needs only the peer's NAPI.
 */
volatile const bool back_by_redirect = false;

#endif
