/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A cap: what goes beyond a rate is dropped. It is the token bucket in the form
 * that needs one number (the virtual scheduling algorithm, ITU-T I.371, annex A): the
 * time until which what has passed takes. A packet passes whole while that lies
 * in the past, so that long ones are not held to be over.
 */
#ifndef FAIRLEAD_VDN_BUCKET_H
#define FAIRLEAD_VDN_BUCKET_H

#include "common.h"

/* How long a sender that was silent may send faster: what TCP needs to come
 * back from a loss while the bucket fills.
 */
#define BUCKET_DEPTH 100000000ULL /* ns */

struct vdn_bucket {
	__u64 rate;  /* bit/s; 0 for no limit; the agent's */
	__u64 until; /* CLOCK_MONOTONIC in ns; the program's */
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
	/* Where another CPU was faster, this packet's time is added to what that made. */
	if (__sync_val_compare_and_swap(&b->until, until, took) != until)
		__sync_fetch_and_add(&b->until, bytes * 8000000000ULL / rate);
	return false;
}

#endif
