/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples dropped packets for users who follow drops. With no follower this costs one
 * comparison per drop.
 */
#ifndef FAIRLEAD_BALANCER_DROP_EVENTS_H
#define FAIRLEAD_BALANCER_DROP_EVENTS_H

#include "maps.h"
#include "trace_event.h"

/* Enough for the headers of any packet, with any encapsulation. */
#define OBSERVED_BYTES 128

struct drop_event {
	__u64 time;   /* nanoseconds of CLOCK_MONOTONIC */
	__u32 reason; /* enum drop_reason */
	__u32 ifindex;
	__u32 cpu;
	__u32 length; /* of the frame; data is its beginning */
	__u8 data[OBSERVED_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} drop_events SEC(".maps");

static __noinline void observe_fill(struct xdp_md *ctx, struct drop_event *e,
				    enum drop_reason reason)
{
	__u32 bytes = bpf_xdp_get_buff_len(ctx);

	if (!e)
		return;
	e->time = bpf_ktime_get_ns();
	e->reason = reason;
	e->ifindex = ctx->ingress_ifindex;
	e->cpu = bpf_get_smp_processor_id();
	e->length = bytes;
	__builtin_memset(e->data, 0, sizeof(e->data));
	if (bytes > OBSERVED_BYTES)
		bytes = OBSERVED_BYTES;
	bpf_xdp_load_bytes(ctx, 0, e->data, within(bytes, OBSERVED_BYTES)); /* no frame is empty */
}

/* set.sample is a mask for a random number. All bits set means that there is no
 * follower.
 */
static __always_inline void observe(struct xdp_md *ctx, enum drop_reason reason)
{
	struct drop_event *e;

	trace_event(TRACE_DROP, reason, 0);
	if (tracing || set.sample == ~0u || bpf_get_prandom_u32() & set.sample)
		return;
	e = bpf_ringbuf_reserve(&drop_events, sizeof(*e), 0);
	if (!e)
		return; /* the follower is slow, but the drop is counted */
	observe_fill(ctx, e, reason);
	bpf_ringbuf_submit(e, 0);
}

#endif
