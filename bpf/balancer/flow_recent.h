/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Recent flows: copies of words of the flow table, packed densely. In the flow table each
 * of 64,000 flows has a page of its own, and the CPU takes longer to find the page than to
 * read the line. This table has a sixteenth of its size.
 *
 *   packet -> its line, in parallel to the frontend's -> a copy -> backend
 *                                      | none, or a write is due
 *                                      +-> flow table -> renewed -> a copy
 *
 * Only flows that a tunnel's packets leave unchanged have a copy, and only until their
 * timeout is renewed, so a copy lasts for FLOW_RENEW. A state change removes it. The agent
 * ends flows that have expired, which have no copy, and flows whose backend is gone, which
 * a packet notices in a copy as well. Its sweeps remove such copies, before a generation
 * recurs.
 *
 * Any CPU writes any entry, without a lock. If two write the same one, its tag is that of
 * no flow.
 */
#ifndef FAIRLEAD_BALANCER_FLOW_RECENT_H
#define FAIRLEAD_BALANCER_FLOW_RECENT_H

#include "flow.h"
#include "maps.h"

/* A line has as many entries as half a set, for RECENT_SETS sets. */
#define RECENT_WAYS 4
#define RECENT_SETS 8

struct flow_recent {
	struct {
		__u64 check; /* tag ^ word */
		__u64 word;
	} way[RECENT_WAYS];
};

_Static_assert(sizeof(struct flow_recent) == 64, "one line");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_recent);
} flow_recent SEC(".maps");

/* What is known of a packet's flow before its frontend. */
struct recent {
	__u64 tag; /* 0: not computed */
	struct flow_recent *line;
};

static __always_inline struct flow_recent *recent_line(__u64 tag)
{
	__u32 line = (tag >> 32) * (flow_sets / RECENT_SETS) >> 32;

	return bpf_map_lookup_elem(&flow_recent, &line);
}

/* Reads a line, so that it arrives while other tables are searched: BPF has no prefetch. */
static __always_inline void recent_touch(const void *line)
{
	__u64 first = *(const volatile __u64 *)line;

	asm volatile("" ::"r"(first)); /* else it is not read */
}

/* Starts to read the line of a packet's flow: of copies, or the home line of its set. */
static __always_inline void recent_begin(struct recent *n, const struct packet *p, bool v6)
{
	struct flow_set *flows;
	__u32 first;

	n->tag = 0;
	n->line = NULL;
	if (tracing || set.early == EARLY_NOTHING || p->flags & TCP_OPENS)
		return;
	n->tag = flow_tuple_tag(&p->t, v6);
	if (likely(set.early == EARLY_COPY)) {
		n->line = recent_line(n->tag);
		if (n->line)
			recent_touch(n->line);
		return;
	}
	flows = flow_set_of(n->tag, &first);
	if (flows)
		recent_touch(&flows->way[flow_way(n->tag, 0)]);
}

/* Returns the copy of a flow's word, or 0. Branch-free like flow_way_of. */
static __always_inline __u64 recent_word(const struct flow_recent *line, __u64 tag)
{
	__u64 found = 0, more = ~0ULL;

#pragma unroll
	for (__u32 i = 0; i < RECENT_WAYS; i++) {
		__u64 word = *(volatile __u64 *)&line->way[i].word;
		__u64 check = *(volatile __u64 *)&line->way[i].check;
		__u64 differs = -(__u64)flow_differs(check ^ word, tag);

		found |= word & more & ~differs;
		more &= differs;
	}
	return found;
}

/* Reports whether a packet renews the timeout: flow_renew. */
static __always_inline bool recent_is_due(__u64 word, __u32 now)
{
	return now + flow_lives[flow_state(word)] - flow_expires(word) >= FLOW_RENEW;
}

/* Returns the entry for a flow, or RECENT_WAYS: its own, else one whose copy is no longer
 * valid. Flows with many packets are the first to find one.
 */
static __always_inline __u64 recent_choose(const struct flow_recent *line, __u64 tag, __u32 now)
{
	__u64 chosen = RECENT_WAYS;

#pragma unroll
	for (__u32 i = 0; i < RECENT_WAYS; i++)
		if (recent_is_due(*(volatile __u64 *)&line->way[i].word, now))
			chosen = i;
#pragma unroll
	for (__u32 i = 0; i < RECENT_WAYS; i++) {
		__u64 word = *(volatile __u64 *)&line->way[i].word;

		if ((*(volatile __u64 *)&line->way[i].check ^ word) == tag)
			return i;
	}
	return chosen;
}

/* Keeps a copy of a flow's word. Of this CPU and one that changes the word meanwhile, at
 * least one sees what the other has written, and removes the copy.
 */
static __always_inline void recent_put(struct flow_recent *line, const struct flow_ref *r,
				       __u32 now)
{
	__u64 way = recent_choose(line, r->tag, now);

	if (way >= RECENT_WAYS || r->word & FLOW_NAT)
		return;
	asm volatile("" : "+r"(way)); /* Linux 6.1 needs a visible mask */
	way &= RECENT_WAYS - 1;
	*(volatile __u64 *)&line->way[way].word = r->word;
	__sync_lock_test_and_set(&line->way[way].check, r->tag ^ r->word);
	if (*(volatile __u64 *)&r->flow->word != r->word || !flow_holds(r))
		*(volatile __u64 *)&line->way[way].check = 0;
}

/* Removes the copy of a flow whose word has changed. */
static __always_inline void recent_forget(__u64 tag)
{
	struct flow_recent *line = recent_line(tag);

	if (!line || tracing)
		return;
#pragma unroll
	for (__u32 i = 0; i < RECENT_WAYS; i++) {
		__u64 word = *(volatile __u64 *)&line->way[i].word;

		if ((*(volatile __u64 *)&line->way[i].check ^ word) == tag)
			*(volatile __u64 *)&line->way[i].check = 0;
	}
}

#endif
