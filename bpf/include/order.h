/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The order of loads and stores as other CPUs see them. Readers of the flow tables
 * take no lock. All these tables follow one protocol:
 *
 *   writer, with a lock: tag = 0, order_store; the rest; tag = new, order_store
 *   reader:              tag; order_after; the rest; order_loads; the tag again
 *
 * A reader that finds the same tag twice has read the rest of that entry and of no
 * other. x86 keeps loads and stores in order, so there the verifier removes all of
 * this when the program is loaded. Other CPUs (arm64) reorder them, including loads
 * after a branch that depends on an earlier load. They keep in order a load whose
 * address depends on an earlier one. BPF has no load-acquire before Linux 6.15. Its
 * value-returning atomic operations are full barriers
 * (Documentation/memory-barriers.txt; arch/arm64/net/bpf_jit_comp.c compiles an
 * exchange to SWPAL, or STLXR and DMB).
 */
#ifndef FAIRLEAD_ORDER_H
#define FAIRLEAD_ORDER_H

#include "common.h"

/* Whether this CPU keeps stores in order, and loads, as x86 does. Set before loading. */
const volatile bool stores_in_order;

/* A full barrier: an atomic operation on private memory. */
static __always_inline void order_all(void)
{
	__u64 nobodys = 0, was;

	was = __sync_lock_test_and_set(&nobodys, 1);
	asm volatile("" ::"r"(was)); /* else the compiler makes it a plain store */
}

/* Completes all earlier loads before any later ones. */
static __always_inline void order_loads(void)
{
	barrier();
	if (!stores_in_order)
		order_all();
	barrier();
}

/* Returns zero, which makes an address depend on a loaded value. Neither the compiler
 * nor the verifier knows that it is zero.
 */
static __always_inline __u64 order_after(__u64 loaded)
{
	asm volatile("%0 &= 0" : "+r"(loaded));
	return loaded;
}

/* Stores after all earlier stores and before all later ones. On x86 a locked
 * instruction would wait for the cache line of each earlier store.
 */
static __always_inline void order_store(__u64 *at, __u64 value)
{
	barrier();
	if (stores_in_order)
		*(volatile __u64 *)at = value;
	else
		__sync_lock_test_and_set(at, value);
	barrier();
}

static __always_inline void order_store32(__u32 *at, __u32 value)
{
	barrier();
	if (stores_in_order)
		*(volatile __u32 *)at = value;
	else
		__sync_lock_test_and_set(at, value);
	barrier();
}

#endif
