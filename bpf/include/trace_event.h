/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Events of a program's decisions, for `fairlead trace`. Only the object that is
 * compiled with TRACING has them, and works on copies (balancer/copy.h);
 * dataplane/xdp/trace.go loads it and describes the events.
 */
#ifndef FAIRLEAD_TRACE_EVENT_H
#define FAIRLEAD_TRACE_EVENT_H

#include "common.h"

/* The comments describe a and b of each. Texts for people are in Go. Append new
 * ones.
 */
enum trace_kind {
	TRACE_NONE,
	TRACE_PACKET,	 /* protocol | enum tcp_flags << 8 | malformed << 16; length */
	TRACE_NOT_OURS,	 /* the destination's bit is clear */
	TRACE_OWN,	 /* to our own address, and to no frontend */
	TRACE_FRONTEND,	 /* id; flags | method << 32 | scheduler << 40 */
	TRACE_UNSERVED,	 /* a VIP, but no frontend */
	TRACE_GUARD,	 /* may pass; 1: it would use up limits */
	TRACE_SLOT,	 /* of how many; slot | hash << 32 */
	TRACE_SERVER,	 /* whom the slot names, by id; chain | opens << 32 */
	TRACE_FLOW,	 /* enum trace_flow; server's id | state before << 32 | after << 40 */
	TRACE_FLOW_MADE, /* 1: the flow table has a new entry; server's id */
	TRACE_ASK,	 /* the kernel's routes are asked; their answer, BPF_FIB_LKUP_RET_*; MTU */
	TRACE_NEXT_HOP,	 /* interface; the next hop's MAC address, its first byte lowest */
	TRACE_ELSEWHERE, /* goes on in another program, enum step */
	TRACE_DROP,	 /* enum drop_reason */
	TRACE_ANSWER,	 /* the program answers: ICMP type of that; MTU that would do, or 0 */
	TRACE_MAC,  /* the frame is for another host: -; its destination, as in TRACE_NEXT_HOP */
	TRACE_TURN, /* a scheduler takes a turn */
	TRACE_REPLACED, /* a new flow pushes this one out: its state; server's id */
	TRACE_AFFINITY, /* the client's next flows go to this server; its id */
	TRACE_FRAGMENT, /* enum trace_fragment */
	TRACE_SYN,	/* enum syn_event (balancer/syn_maps.h); server's id */
};

enum trace_flow {
	TRACE_FLOW_UNKNOWN,
	TRACE_FLOW_KNOWN,
	TRACE_FLOW_ANSWER, /* a server's packet of a known flow */
};

enum trace_fragment {
	TRACE_FRAGMENT_FIRST, /* its ports are kept for the others */
	TRACE_FRAGMENT_KNOWN, /* the ports are those of the first */
	TRACE_FRAGMENT_WAITS, /* user space keeps it until the first comes */
};

struct trace_entry {
	enum trace_kind kind;
	__u32 a;
	__u64 b;
};

#define TRACE_EVENTS 48

#ifdef TRACING

#define tracing true

/* Not a map of its own, which would need stack for a key. */
struct trace_list {
	__u32 n;	/* also where there was no room */
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

/* Six bytes as TRACE_NEXT_HOP carries them. */
static __always_inline __u64 trace_mac(const __u8 *mac)
{
	__u64 b = 0;

#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++)
		b |= (__u64)mac[i] << (8 * i);
	return b;
}

#endif
