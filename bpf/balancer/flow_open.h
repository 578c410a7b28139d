/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Opens a flow: claims an entry of its set under the set's lock. If several CPUs open
 * the same flow concurrently, the first assigns a backend; the others wait for the
 * lock and find the flow.
 *
 *   lock -> exists by now? -> use it
 *           | no
 *           +-> the first entry to evict -> its word -> its tag, unlock
 *
 * The lock is held for about 50 ns; for nat and fullnat until the flow has a return
 * entry. The agent never takes it.
 */
#ifndef FAIRLEAD_BALANCER_FLOW_OPEN_H
#define FAIRLEAD_BALANCER_FLOW_OPEN_H

#include "flow.h"

/* Attempts to lock a set before the packet is dropped: about 100 us. */
#define FLOW_TRIES (1u << 15)
/* A flow silent for this long may be evicted for a new one. */
#define FLOW_IDLE FLOW_SECONDS(200)
/* The same for a flow that seems to have ended but may continue. */
#define FLOW_SOON_IDLE FLOW_SECONDS(60)

/* A key gives the eviction order, lowest first: the flow's own entry; an ended flow;
 * one that a flood may evict; one that was silent for long. Within a class the home
 * line comes first, then the entry closest to its expiry. The lowest bits are the
 * way, counted from home.
 */
#define FLOW_OTHERS (1ULL << 3)
#define FLOW_LEFT_SHIFT 4
#define FLOW_OTHER_LINE (1ULL << 36)
#define FLOW_STRONG (1ULL << 37)
#define FLOW_KEPT_SHIFT 38
#define FLOW_KEPT (1ULL << FLOW_KEPT_SHIFT)

/* Per state: the remaining time above which a flow is never evicted, and FLOW_STRONG
 * if no flood evicts it.
 */
#define FLOW_ALWAYS 0xffffffffULL

const volatile __u64 flow_yields[16] = {
	[FLOW_OPENING] = FLOW_ALWAYS,
	[FLOW_ESTABLISHED] = FLOW_STRONG | (FLOW_SECONDS(900) - FLOW_IDLE),
	[FLOW_FINISHING] = FLOW_STRONG | (FLOW_SECONDS(120) - FLOW_SOON_IDLE),
	[FLOW_CLOSED] = FLOW_ALWAYS,
	[FLOW_UDP_OPENING] = FLOW_ALWAYS,
	[FLOW_UDP] = FLOW_STRONG | (FLOW_SECONDS(300) - FLOW_IDLE),
	[FLOW_CLIENT_OPENING] = FLOW_ALWAYS,
	[FLOW_CLIENT] = FLOW_STRONG | FLOW_ALWAYS,
	[FLOW_ANSWERED] = FLOW_ALWAYS,
	[FLOW_CLIENT_RESET] = FLOW_STRONG | (FLOW_SECONDS(120) - FLOW_SOON_IDLE),
	[FLOW_SERVER_FIN] = FLOW_STRONG | (FLOW_SECONDS(120) - FLOW_SOON_IDLE),
	[FLOW_TIME_WAIT] = FLOW_ALWAYS,
};

static __always_inline bool flow_lock(struct flow_set *set)
{
	__u64 *first = &set->way[0].tag, was = *(volatile __u64 *)first;

	return !(was & FLOW_LOCKED) &&
	       __sync_val_compare_and_swap(first, was, was | FLOW_LOCKED) == was;
}

static __always_inline void flow_unlock(struct flow_set *set)
{
	order_store(&set->way[0].tag, flow_tag_of(&set->way[0]));
}

/* Returns an entry of a set. The index is masked here, where Linux 6.1 can see it. */
static __always_inline struct flow *flow_at(struct flow_set *set, __u64 index)
{
	asm volatile("" : "+r"(index));
	return &set->way[index % FLOW_WAYS];
}

/* Changes the tag of an entry in a locked set. */
static __always_inline void flow_retag(struct flow_set *set, __u32 index, __u64 tag)
{
	order_store(&flow_at(set, index)->tag, index % FLOW_WAYS ? tag : tag | FLOW_LOCKED);
}

/* Returns 1 if x is negative. The compiler must not know the source or use of x: it
 * would create branches, and the verifier 256 paths for eight of them.
 */
static __always_inline __u64 flow_below_zero(__u64 x)
{
	asm volatile("" : "+r"(x));
	x >>= 63;
	asm volatile("" : "+r"(x));
	return x;
}

/* Returns all ones if x is negative. Do not combine it with a constant: the verifier
 * would split it into two paths.
 */
static __always_inline __u64 flow_mask(__s64 x)
{
	asm volatile("" : "+r"(x));
	x >>= 63;
	asm volatile("" : "+r"(x));
	return x;
}

/* Returns the key of the i-th way from home. */
static __always_inline __u64 flow_key(const struct flow *flow, __u64 tag, __u32 now, __u32 i)
{
	__u64 word = *(volatile __u64 *)&flow->word, differs = flow_tag_of(flow) ^ tag;
	__u64 yields = flow_yields[flow_state(word)];
	__s64 left = (__s32)(flow_expires(word) - now);
	__u64 key = left << FLOW_LEFT_SHIFT | (yields & FLOW_STRONG);

	if (i >= FLOW_LINE)
		key |= FLOW_OTHER_LINE;
	key |= flow_below_zero((yields & FLOW_ALWAYS) - left) << FLOW_KEPT_SHIFT;
	key = (key & flow_mask(-left)) | FLOW_OTHERS;
	return (key & flow_mask(differs | -differs)) | i;
}

/* Returns the lowest key of a set. */
static __always_inline __u64 flow_first_key(const struct flow_set *set, __u64 tag, __u32 now)
{
	__u64 first = ~0ULL >> 1;

#pragma unroll
	for (__u32 i = 0; i < FLOW_WAYS; i++) {
		__u64 key = flow_key(&set->way[flow_way(tag, i)], tag, now, i);

		first ^= (first ^ key) & flow_mask(key - first);
	}
	return first;
}

enum flow_claimed {
	FLOW_CLAIMED, /* the entry has the word; its set stays locked until flow_publish */
	FLOW_BUSY,    /* lock unavailable, or the entry was just used: retry */
	FLOW_FULL,    /* the set is full of flows that must stay */
	FLOW_FOUND,   /* another CPU has just opened it, with that word */
};

/* A request for an entry. */
struct flow_claim {
	struct flow_set *set;
	__u64 tag;
	__u64 word;  /* in: desired; out: actual */
	__u64 was;   /* in: the word found void, or 0; out: the previous word */
	__u32 index; /* in: the set's first; out: the entry's */
	__u32 spare; /* index + 1 of an entry that must stay; 0: none */
	__u32 now;
	bool locked;
};

/* Takes an entry of a locked set. */
static __always_inline enum flow_claimed flow_take(struct flow_claim *c)
{
	__u64 key = flow_first_key(c->set, c->tag, c->now), tag, was;
	__u32 way = flow_way(c->tag, key);
	struct flow *flow = flow_at(c->set, way);

	tag = flow_tag_of(flow);
	was = *(volatile __u64 *)&flow->word;
	if (tag == c->tag && was != c->was && !flow_expired(was, c->now)) {
		c->word = was;
		c->index += way;
		return FLOW_FOUND;
	}
	if (key >= FLOW_KEPT || c->index + way + 1 == c->spare)
		return FLOW_FULL;
	flow_retag(c->set, way, 0);
	if (!was) { /* never changed concurrently */
		*(volatile __u64 *)&flow->word = c->word;
	} else if (__sync_val_compare_and_swap(&flow->word, was, c->word) != was) {
		flow_retag(c->set, way, tag);
		return FLOW_BUSY;
	}
	if (!flow_expired(was, c->now) && tag != c->tag)
		trace_event(TRACE_REPLACED, flow_state(was), flow_server(was));
	c->was = was;
	c->index += way;
	return FLOW_CLAIMED;
}

static long flow_try(__u32 i __attribute__((unused)), void *arg)
{
	struct flow_claim *c = arg;

	c->locked = flow_lock(c->set);
	return c->locked;
}

/* Claims an entry and releases what it held before. */
static __always_inline enum flow_claimed flow_claim(struct flow_claim *c)
{
	enum flow_claimed claimed;

	c->locked = false;
	bpf_loop(FLOW_TRIES, flow_try, c, 0);
	if (!c->locked)
		return FLOW_BUSY;
	claimed = flow_take(c);
	if (claimed != FLOW_CLAIMED) {
		flow_unlock(c->set);
		return claimed;
	}
	flow_forget(c->was, c->index);
	if (flow_counts(c->word))
		connections_add(flow_server(c->word), flow_counts(c->word));
	return FLOW_CLAIMED;
}

/* Makes a completely written entry visible and unlocks the set. */
static __always_inline void flow_publish(struct flow_set *set, __u32 index, __u64 tag)
{
	flow_retag(set, index, tag);
	flow_unlock(set);
}

/* Releases a claimed entry. */
static __always_inline void flow_drop(struct flow_set *set, __u32 index)
{
	__u64 was = __sync_lock_test_and_set(&flow_at(set, index)->word, 0);

	flow_forget(was, index);
	flow_unlock(set);
}

#endif
