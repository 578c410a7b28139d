/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A rate limit: packets above the rate are dropped. It is a token bucket that needs
 * only one number (the virtual scheduling algorithm, ITU-T I.371, annex A): the time
 * until which the passed packets occupy the rate. A packet passes completely while
 * that time is in the past, so that long packets are not dropped for their length.
 */
#ifndef FAIRLEAD_VDN_BUCKET_H
#define FAIRLEAD_VDN_BUCKET_H

#include "common.h"

/* How long a sender may exceed the rate after silence: enough for TCP to recover from
 * a loss while the bucket fills.
 */
#define BUCKET_DEPTH 100000000ULL /* ns */

struct vdn_bucket {
	__u64 rate;  /* bit/s, 0: unlimited; set by the agent */
	__u64 until; /* CLOCK_MONOTONIC in ns; set by the program */
};

static __always_inline bool bucket_over(struct vdn_bucket *b, __u32 bytes)
{
	__u64 rate = b->rate, until = b->until, now, earliest, took;

	if (!rate)
		return false;
	now = bpf_ktime_get_ns();
	if (until > now)
		return true;
	earliest = now - BUCKET_DEPTH;
	took = (until > earliest ? until : earliest) + bytes * 8000000000ULL / rate;
	/* If another CPU was faster, this packet's time is added to its result. */
	if (__sync_val_compare_and_swap(&b->until, until, took) != until)
		__sync_fetch_and_add(&b->until, bytes * 8000000000ULL / rate);
	return false;
}

#endif
