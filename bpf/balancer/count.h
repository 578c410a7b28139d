/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counting what was sent on, and naming what was dropped. */
#ifndef FAIRLEAD_BALANCER_COUNT_H
#define FAIRLEAD_BALANCER_COUNT_H

#include "maps.h"
#include "observe.h"

/* Global, so that the verifier looks at it once and not at each call. */
__noinline int drop_count(struct xdp_md *ctx, enum drop_reason reason)
{
	__u32 key = reason;
	__u64 *count = bpf_map_lookup_elem(&drops, &key);

	if (count && !tracing)
		(*count)++;
	observe(ctx, reason);
	asm volatile("" ::"r"(ctx)); /* or callers pass none where nobody reads it */
	return 0;
}

/* Drops the packet as it is now. */
static __always_inline int drop(struct xdp_md *ctx, enum drop_reason reason)
{
	drop_count(ctx, reason);
	return XDP_DROP;
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
	if (new_flow)
		c->flows++;
}

#endif
