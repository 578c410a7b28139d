/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a program says of its decisions, for `fairlead trace`. Only the object that
 * is compiled with TRACING has notes, and works on copies (balancer/copy.h);
 * dataplane/xdp/trace.go loads it and puts notes in words.
 */
#ifndef FAIRLEAD_NOTE_H
#define FAIRLEAD_NOTE_H

#include "common.h"

/* a and b of each are told here. Words for people are in Go. New ones go at the
 * end.
 */
enum note_kind {
	NOTE_NONE,
	NOTE_PACKET,	/* protocol | enum tcp_flags << 8 | malformed << 16; length */
	NOTE_NOT_OURS,	/* the destination's bit is clear */
	NOTE_OWN,	/* to our own address, and to no frontend */
	NOTE_FRONTEND,	/* id; flags | method << 32 | scheduler << 40 */
	NOTE_UNSERVED,	/* a VIP, but no frontend */
	NOTE_GUARD,	/* may pass; 1: it would use up limits */
	NOTE_SLOT,	/* of how many; slot | hash << 32 */
	NOTE_SERVER,	/* whom the slot names, by id; chain | opens << 32 */
	NOTE_FLOW,	/* enum note_flow; server's id | state before << 32 | after << 40 */
	NOTE_FLOW_MADE, /* 1: the flow table has a new entry; server's id */
	NOTE_ASK,	/* the kernel's routes are asked; their answer, BPF_FIB_LKUP_RET_*; MTU */
	NOTE_NEXT_HOP,	/* interface; the next hop's MAC address, its first byte lowest */
	NOTE_ELSEWHERE, /* goes on in another program, enum step */
	NOTE_DROP,	/* enum drop_reason */
	NOTE_ANSWER,	/* the program answers: ICMP type of that; MTU that would do, or 0 */
	NOTE_MAC,	/* the frame is for another host: -; its destination, as in NOTE_NEXT_HOP */
	NOTE_TURN,	/* a scheduler takes a turn */
	NOTE_REPLACED,	/* a new flow pushes this one out: its state; server's id */
	NOTE_AFFINITY,	/* the client's next flows go to this server; its id */
	NOTE_FRAGMENT,	/* enum note_fragment */
	NOTE_SYN,	/* enum syn_event (balancer/syn_maps.h); server's id */
};

enum note_flow {
	NOTE_FLOW_UNKNOWN,
	NOTE_FLOW_KNOWN,
	NOTE_FLOW_ANSWER, /* a server's packet of a known flow */
};

enum note_fragment {
	NOTE_FRAGMENT_FIRST, /* its ports are kept for the others */
	NOTE_FRAGMENT_KNOWN, /* the ports are those of the first */
	NOTE_FRAGMENT_WAITS, /* user space keeps it until the first comes */
};

struct note {
	enum note_kind kind;
	__u32 a;
	__u64 b;
};

#define NOTES 48

#ifdef TRACING

#define tracing true

/* Not a map of its own, which would need stack for a key. */
struct note_list {
	__u32 n;	/* also where there was no room */
	__u32 uncopied; /* entries of live maps that could not be copied */
	struct note note[NOTES];
} notes SEC(".data.notes");

const enum note_flow *unused_note_flow __attribute__((unused)); /* for bpf2go */
const enum note_fragment *unused_note_fragment __attribute__((unused));

static __always_inline void note(enum note_kind kind, __u32 a, __u64 b)
{
	__u32 at = notes.n++;

	if (at >= NOTES)
		return;
	notes.note[at].kind = kind;
	notes.note[at].a = a;
	notes.note[at].b = b;
}

#else

#define tracing false
#define note(kind, a, b)                                                                           \
	do {                                                                                       \
		if (0) {                                                                           \
			(void)(a);                                                                 \
			(void)(b);                                                                 \
		}                                                                                  \
	} while (0)

#endif

/* Six bytes as NOTE_NEXT_HOP carries them. */
static __always_inline __u64 note_mac(const __u8 *mac)
{
	__u64 b = 0;

#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++)
		b |= (__u64)mac[i] << (8 * i);
	return b;
}

#endif
