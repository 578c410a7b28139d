/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counts forwarded packets and reports drops by reason. */
#ifndef FAIRLEAD_BALANCER_COUNT_H
#define FAIRLEAD_BALANCER_COUNT_H

#include "maps.h"
#include "drop_events.h"

/* Global, so that the verifier checks it once and not per call. */
__noinline int drop_count(struct xdp_md *ctx, enum drop_reason reason)
{
	__u32 key = reason;
	__u64 *count = bpf_map_lookup_elem(&drops, &key);

	if (count && !tracing)
		(*count)++;
	observe(ctx, reason);
	asm volatile("" ::"r"(ctx)); /* else callers pass no ctx where nothing reads it */
	return 0;
}

/* Drops the packet in its present form. */
static __always_inline int drop(struct xdp_md *ctx, enum drop_reason reason)
{
	drop_count(ctx, reason);
	return XDP_DROP;
}

/* Frontends with many new connections: each CPU records every SYN_HOT_STEP-th new
 * flow of a frontend. The agent reads this list instead of all frontends' counters.
 */
#define SYN_HOT_STEP 1024
#define SYN_HOT_NOTES 64

struct syn_hot {
	__u32 n; /* total number of notes */
	__u32 zero;
	__u32 frontend[SYN_HOT_NOTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syn_hot);
} syn_hot SEC(".maps");

/* Global, because it is rarely called. */
__noinline int syn_hot_note(__u32 frontend)
{
	__u32 zero = 0, at;
	struct syn_hot *h = bpf_map_lookup_elem(&syn_hot, &zero);

	if (!h)
		return 0;
	at = h->n & (SYN_HOT_NOTES - 1);
	h->frontend[at] = frontend;
	h->n++;
	return 0;
}

static __always_inline void count(__u32 frontend, struct server_cpu *server, __u16 bytes,
				  bool new_flow)
{
	struct counts *c = bpf_map_lookup_elem(&frontend_counts, &frontend);

	if (tracing)
		return;
	server->packets++;
	server->bytes += bytes;
	if (new_flow)
		server->flows++;
	if (!c)
		return;
	c->packets++;
	c->bytes += bytes;
	if (new_flow && unlikely(++c->flows % SYN_HOT_STEP == 0))
		syn_hot_note(frontend);
}

#endif
