/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The life of a remembered flow. */
#ifndef FAIRLEAD_BALANCER_FLOW_H
#define FAIRLEAD_BALANCER_FLOW_H

#include "maps.h"

enum flow_state {
	FLOW_OPENING = 0,
	FLOW_ESTABLISHED = 1,
	FLOW_CLOSING = 2,
	FLOW_UDP = 3,
};

/* A remembered flow. rr remembers the server; fullnat also what the packet
 * becomes, once for each direction: the tuple `to` the other way round is the
 * key of the other direction's entry.
 */
struct flow {
	struct tuple to;
	__u32 server;
	__u32 generation; /* of the server */
	__u32 expires;	  /* seconds of the coarse clock */
	__u8 state;	  /* enum flow_state */
	__u8 back;	  /* fullnat: from the server to the client */
	__u8 zero[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct tuple);
	__type(value, struct flow);
} flows SEC(".maps");

/* Seconds without a packet. Two hours is when Linux sends its first TCP
 * keepalive (tcp_keepalive_time).
 */
#define LIFE_OPENING 60
#define LIFE_ESTABLISHED 7200
#define LIFE_CLOSING 60
#define LIFE_UDP 300

/* Seconds since boot, from the clock that costs nothing to read. */
static __always_inline __u32 flow_now(void)
{
	return bpf_ktime_get_coarse_ns() / 1000000000;
}

static __always_inline __u32 flow_life(__u8 state)
{
	switch (state) {
	case FLOW_ESTABLISHED:
		return LIFE_ESTABLISHED;
	case FLOW_UDP:
		return LIFE_UDP;
	case FLOW_CLOSING:
		return LIFE_CLOSING;
	}
	return LIFE_OPENING;
}

static __always_inline bool flow_expired(const struct flow *fl, __u32 now)
{
	return (__s32)(fl->expires - now) <= 0;
}

/* The state after this packet. */
static __always_inline __u8 flow_next(const struct flow *fl, const struct packet *p)
{
	if (p->t.proto == IPPROTO_UDP)
		return FLOW_UDP;
	if (p->flags & TCP_FINISHES)
		return FLOW_CLOSING;
	if (fl->state == FLOW_CLOSING)
		return p->flags & TCP_OPENS ? FLOW_OPENING : FLOW_CLOSING;
	if (p->flags & TCP_CONTINUES)
		return FLOW_ESTABLISHED;
	return fl->state;
}

static __always_inline void tuple_reverse(struct tuple *r, const struct tuple *t)
{
	r->src = t->dst;
	r->dst = t->src;
	r->sport = t->dport;
	r->dport = t->sport;
	r->proto = t->proto;
	r->zero[0] = 0;
	r->zero[1] = 0;
	r->zero[2] = 0;
}

static __always_inline bool tuple_equal(const struct tuple *a, const struct tuple *b)
{
	__u32 differ = addr_differ(&a->src, &b->src) | addr_differ(&a->dst, &b->dst);

	return (differ | (a->sport ^ b->sport) | (a->dport ^ b->dport) | (a->proto ^ b->proto)) ==
	       0;
}

/* A connection that ends or starts anew does so in both directions: without
 * this, one RST would leave the other entry to its two hours.
 */
static __noinline void flow_set_other(struct flow *fl, enum flow_state state, __u32 expires)
{
	struct tuple key;
	struct flow *other;

	if (!fl)
		return;
	tuple_reverse(&key, &fl->to);
	other = bpf_map_lookup_elem(&flows, &key);
	if (other) {
		other->state = state;
		other->expires = expires;
	}
}

/* Notes that a packet of the flow went by. Written once a second and at a
 * change of state only, to leave the cache line alone.
 */
static __always_inline void flow_touch(struct flow *fl, const struct packet *p, __u32 now,
				       bool two_way)
{
	__u8 state = flow_next(fl, p);
	__u32 expires = now + flow_life(state);

	if (fl->state != state) {
		fl->state = state;
		if (two_way && state != FLOW_ESTABLISHED)
			flow_set_other(fl, state, expires);
	}
	if (fl->expires != expires)
		fl->expires = expires;
}

#endif
