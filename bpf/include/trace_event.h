/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Events of a program's decisions, for `fairlead trace`. Only the object compiled
 * with TRACING has them. It works on copies (balancer/copy.h). dataplane/xdp/trace.go
 * loads it and describes the events.
 */
#ifndef FAIRLEAD_TRACE_EVENT_H
#define FAIRLEAD_TRACE_EVENT_H

#include "common.h"

/* The comments describe a and b of each. User-visible texts are in Go. Append new
 * ones.
 */
enum trace_kind {
	TRACE_NONE,
	TRACE_PACKET,	 /* protocol | enum tcp_flags << 8 | malformed << 16; length */
	TRACE_NOT_OURS,	 /* the destination's bit is clear */
	TRACE_OWN,	 /* to our own address, but to no frontend */
	TRACE_FRONTEND,	 /* id; flags | method << 32 | scheduler << 40 */
	TRACE_UNSERVED,	 /* to a VIP, but no frontend */
	TRACE_GUARD,	 /* may pass; 1: it would consume rate limits */
	TRACE_SLOT,	 /* number of slots; slot | hash << 32 */
	TRACE_SERVER,	 /* the slot's backend id; chain | opens << 32 */
	TRACE_FLOW,	 /* enum trace_flow; backend id | state before << 32 | after << 40 */
	TRACE_FLOW_MADE, /* 1: new entry in the flow table; backend id */
	TRACE_ASK,	 /* route lookup: its result, BPF_FIB_LKUP_RET_*; MTU */
	TRACE_NEXT_HOP,	 /* interface; the next hop's MAC address, first byte lowest */
	TRACE_ELSEWHERE, /* continues in another program, enum step */
	TRACE_DROP,	 /* enum drop_reason */
	TRACE_ANSWER,	 /* the program answers: its ICMP type; the MTU that fits, or 0 */
	TRACE_MAC,  /* the frame is for another host: -; its destination, as in TRACE_NEXT_HOP */
	TRACE_TURN, /* a scheduler takes the next turn */
	TRACE_REPLACED, /* evicted by a new flow: its state; backend id */
	TRACE_AFFINITY, /* -; id of the backend for the client's next flows */
	TRACE_FRAGMENT, /* enum trace_fragment */
	TRACE_SYN,	/* enum syn_event (balancer/syn_maps.h); backend id */
};

enum trace_flow {
	TRACE_FLOW_UNKNOWN,
	TRACE_FLOW_KNOWN,
	TRACE_FLOW_ANSWER, /* a backend's packet of a known flow */
};

enum trace_fragment {
	TRACE_FRAGMENT_FIRST, /* its ports are stored for the others */
	TRACE_FRAGMENT_KNOWN, /* the ports are those of the first */
	TRACE_FRAGMENT_WAITS, /* user space holds it until the first arrives */
};

struct trace_entry {
	enum trace_kind kind;
	__u32 a;
	__u64 b;
};

#define TRACE_EVENTS 48

#ifdef TRACING

#define tracing true

/* Not a separate map, which would need stack for a key. */
struct trace_list {
	__u32 n;	/* also counts events without room */
	__u32 uncopied; /* entries of live maps that could not be copied */
	struct trace_entry entry[TRACE_EVENTS];
} trace_events SEC(".data.trace_events");

const enum trace_flow *unused_trace_flow __attribute__((unused)); /* for bpf2go */
const enum trace_fragment *unused_trace_fragment __attribute__((unused));

static __always_inline void trace_event(enum trace_kind kind, __u32 a, __u64 b)
{
	__u32 at = trace_events.n++;

	if (at >= TRACE_EVENTS)
		return;
	trace_events.entry[at].kind = kind;
	trace_events.entry[at].a = a;
	trace_events.entry[at].b = b;
}

#else

#define tracing false
#define trace_event(kind, a, b)                                                                    \
	do {                                                                                       \
		if (0) {                                                                           \
			(void)(a);                                                                 \
			(void)(b);                                                                 \
		}                                                                                  \
	} while (0)

#endif

/* Packs six bytes as in TRACE_NEXT_HOP. */
static __always_inline __u64 trace_mac(const __u8 *mac)
{
	__u64 b = 0;

#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++)
		b |= (__u64)mac[i] << (8 * i);
	return b;
}

#endif
