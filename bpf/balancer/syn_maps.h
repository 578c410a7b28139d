/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* State of the SYN flood protection (syn.h): keys, validated clients, connections
 * with translated sequence numbers, and counters.
 */
#ifndef FAIRLEAD_BALANCER_SYN_MAPS_H
#define FAIRLEAD_BALANCER_SYN_MAPS_H

#include "copy.h"
#include "maps.h"

/* The keys of cookies: the first one makes them, all are accepted. Load balancers
 * with the same keys accept each other's cookies.
 */
#define SYN_KEYS 2

struct syn_key {
	__u64 k0, k1;
};

struct syn_keys {
	struct syn_key key[SYN_KEYS];
	__u32 n;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syn_keys);
} syn_keys SEC(".maps");

/* Settings that the agent can change at any time, in the map of struct settings. */
struct syn_settings {
	__u64 wall; /* ns by which CLOCK_REALTIME is ahead of the coarse clock */
	__u16 mss4; /* sent to clients */
	__u16 mss6;
	__u32 active; /* some connection may have been opened by a cookie */
};

struct syn_settings syn_set SEC(".data.settings") = {.mss4 = 1460, .mss6 = 1440};

/* Events at a protected frontend. */
enum syn_event {
	SYN_COOKIE_SENT,	/* a SYN-ACK with a cookie */
	SYN_COOKIE_ACCEPTED,	/* a valid one opened a connection */
	SYN_COOKIE_REJECTED,	/* an ACK of no known flow without a valid one */
	SYN_CHALLENGE_SENT,	/* to the unvalidated source of a SYN */
	SYN_CHALLENGE_ANSWERED, /* that source is now validated */
	SYN_ADMITTED,		/* a SYN of a validated source */
	SYN_EVENTS,
};

const enum syn_event *unused_syn_event __attribute__((unused)); /* for bpf2go */

struct syn_counts {
	__u64 n[SYN_EVENTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32); /* the frontend's id */
	__type(value, struct syn_counts);
} syn_counts SEC(".maps");

static __always_inline void syn_count(const struct frontend *f, enum syn_event event)
{
	__u32 id = f->id;
	struct syn_counts *c = bpf_map_lookup_elem(&syn_counts, &id);

	if (c && !tracing)
		c->n[event]++;
}

/* Validated sources, eight per cache line. A newly validated one replaces the one
 * that expires first.
 */
#define SYN_WAYS 8
#define SYN_SETS 32768

struct syn_source {
	__u32 tag;     /* of the address; 0: free */
	__u16 expires; /* lower half of a tick of the flow table's clock */
	__u16 syns;    /* that it may still send */
};

struct syn_sources {
	struct syn_source way[SYN_WAYS];
};

_Static_assert(sizeof(struct syn_sources) == 64, "one cache line");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SYN_SETS);
	__type(key, __u32);
	__type(value, struct syn_sources);
} syn_sources SEC(".maps");

COPIES(syn_source_copies, struct syn_sources);

enum syn_flow_flags {
	SYN_FLOW_SACK = 1,	 /* the client permits selective acknowledgments */
	SYN_FLOW_TIMESTAMPS = 2, /* both have timestamps */
	SYN_FLOW_SCALES = 4,	 /* the client's SYN had a window scale */
	SYN_FLOW_ANSWERED = 8,	 /* the backend has accepted; shifts are known */
	SYN_FLOW_PLAIN = 16,	 /* the backend's numbers are the client's: no shift */
} __attribute__((packed));

/* A connection opened by a cookie: the client has our sequence numbers instead of the
 * backend's. Indexed like its flow.
 */
struct syn_flow {
	__u64 tag;	/* the flow's; with another tag the entry is void */
	__u32 made;	/* tick of the flow table's clock */
	__u32 cookie;	/* our SYN-ACK's sequence number; all in host order */
	__u32 seq;	/* the client's SYN's */
	__u32 shift;	/* from the backend's sequence numbers to ours */
	__u32 ts_shift; /* from the backend's timestamps to ours */
	__u32 ts_value; /* the client's timestamp in the ACK, and ours, which it echoes */
	__u32 ts_echo;
	__u16 mss;   /* the client's, or slightly less */
	__u8 scale;  /* the client's */
	__u8 scales; /* the backend's */
	enum syn_flow_flags flags;
	__u8 zero[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32); /* index in flow_data */
	__type(value, struct syn_flow);
} syn_flows SEC(".maps");

COPIES(syn_flow_copies, struct syn_flow);

static __always_inline struct syn_flow *syn_flow_of(__u32 index, __u64 tag)
{
	struct syn_flow *f = bpf_map_lookup_elem(&syn_flows, &index);

	f = writable(syn_flow_copies, index, f);
	return f && f->tag == tag ? f : NULL;
}

#endif
