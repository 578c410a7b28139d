/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Opening a flow: it gets an entry of its set, under the set's lock. Of several
 * CPUs that open one flow at once the first gives it a server; the others wait
 * for the lock, and find it.
 *
 *   lock -> there by now? -> it is that
 *           | no
 *           +-> the entry that gives way first -> its word -> its tag, unlock
 *
 * The lock is held for some 50 ns, by nat and fullnat until the flow has a way
 * back; never by the agent.
 */
#ifndef FAIRLEAD_BALANCER_FLOW_OPEN_H
#define FAIRLEAD_BALANCER_FLOW_OPEN_H

#include "flow.h"

/* How often a set's lock is tried before the packet is dropped: some 100 us. */
#define FLOW_TRIES (1u << 15)
/* A flow that was silent for so long gives way to a new one, if need be. */
#define FLOW_IDLE FLOW_SECONDS(200)
/* The same of one that seems to have ended, but may go on. */
#define FLOW_SOON_IDLE FLOW_SECONDS(60)

/* A key says how soon an entry gives way, the lower the sooner: the flow's own;
 * one that is over; one that a flood may push out; one that was silent for long.
 * Among those the home line's first, and then the nearest to its end. In the
 * lowest bits is the way, counted from home.
 */
#define FLOW_OTHERS (1ULL << 3)
#define FLOW_LEFT_SHIFT 4
#define FLOW_BESIDE (1ULL << 36)
#define FLOW_STRONG (1ULL << 37)
#define FLOW_KEPT_SHIFT 38
#define FLOW_KEPT (1ULL << FLOW_KEPT_SHIFT)

/* By state: with how much time left a flow is kept whatever comes, and
 * FLOW_STRONG where no flood pushes it out.
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

/* The entry of a set, which is reduced here, for Linux 6.1 to see it. */
static __always_inline struct flow *flow_at(struct flow_set *set, __u64 index)
{
	asm volatile("" : "+r"(index));
	return &set->way[index % FLOW_WAYS];
}

/* Changes the tag of an entry of a locked set. */
static __always_inline void flow_retag(struct flow_set *set, __u32 index, __u64 tag)
{
	order_store(&flow_at(set, index)->tag, index % FLOW_WAYS ? tag : tag | FLOW_LOCKED);
}

/* One where x is below zero. The compiler is to know neither where x comes from
 * nor what it becomes, or it makes branches of it, and the verifier 256 ways of
 * eight of them.
 */
static __always_inline __u64 flow_below_zero(__u64 x)
{
	asm volatile("" : "+r"(x));
	x >>= 63;
	asm volatile("" : "+r"(x));
	return x;
}

/* All ones where x is below zero; not to be used with a constant, for which the
 * verifier makes two ways of it, too.
 */
static __always_inline __u64 flow_mask(__s64 x)
{
	asm volatile("" : "+r"(x));
	x >>= 63;
	asm volatile("" : "+r"(x));
	return x;
}

/* The key of the i-th way from home. */
static __always_inline __u64 flow_key(const struct flow *flow, __u64 tag, __u32 now, __u32 i)
{
	__u64 word = *(volatile __u64 *)&flow->word, differs = flow_tag_of(flow) ^ tag;
	__u64 yields = flow_yields[flow_state(word)];
	__s64 left = (__s32)(flow_expires(word) - now);
	__u64 key = left << FLOW_LEFT_SHIFT | (yields & FLOW_STRONG);

	if (i >= FLOW_LINE)
		key |= FLOW_BESIDE;
	key |= flow_below_zero((yields & FLOW_ALWAYS) - left) << FLOW_KEPT_SHIFT;
	key = (key & flow_mask(-left)) | FLOW_OTHERS;
	return (key & flow_mask(differs | -differs)) | i;
}

/* The lowest key of a set. */
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
	FLOW_CLAIMED, /* the entry has the word; its set is locked until flow_publish */
	FLOW_BUSY,    /* the lock could not be had, or the entry that was to give way has just
		       * been used: to be tried again
		       */
	FLOW_FULL,    /* the set is full of flows that must not go */
	FLOW_FOUND,   /* another CPU has just opened it, with that word */
};

/* An entry that is to be had. */
struct flow_claim {
	struct flow_set *set;
	__u64 tag;
	__u64 word;  /* in: what it is to be; out: what it is */
	__u64 was;   /* in: the word that was found void, or 0; out: what it was */
	__u32 index; /* in: the set's first; out: the entry's */
	__u32 spare; /* the index of an entry that must stay, and one; 0: none */
	__u32 now;
	bool locked;
};

/* Takes an entry of a set that is locked. */
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
	if (!was) { /* which nobody changes */
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

/* Claims an entry, in place of what it was. */
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

/* Lets others see a claimed entry, all of which is written. */
static __always_inline void flow_publish(struct flow_set *set, __u32 index, __u64 tag)
{
	flow_retag(set, index, tag);
	flow_unlock(set);
}

/* Lets go of a claimed entry: it is nobody's. */
static __always_inline void flow_drop(struct flow_set *set, __u32 index)
{
	__u64 was = __sync_lock_test_and_set(&flow_at(set, index)->word, 0);

	flow_forget(was, index);
	flow_unlock(set);
}

#endif
