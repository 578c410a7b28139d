/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flows of this node's backends, each with the VIP to restore.
 *
 * The table is an array of sets of eight. A flow can be in only one set, so a packet
 * reads two cache lines, regardless of the table's age (an LRU hash map costs several
 * times as much once it has been full). A set's first line has tags, bits of the
 * flow's hash.
 *
 * All fields except the time of the last packet are written with the set's lock held.
 * Readers take no lock: find_flow finds a flow by its tag. If several fields must be
 * consistent, they are valid only if flow_holds afterwards finds that the entry has
 * not been rewritten (order.h).
 *
 * A new flow takes the least valuable entry in its set: a free one, an expired one,
 * one that no backend has answered. A flow with packets in both directions is evicted
 * for nothing less while it is in use. So neither a flood of SYNs nor any other flood
 * with forged addresses evicts it.
 */
#ifndef FAIRLEAD_DSR_FLOWS_H
#define FAIRLEAD_DSR_FLOWS_H

#include "common.h"
#include "hash.h"
#include "maps.h"
#include "order.h"

#define FLOW_WAYS 8

/* What has been seen of a flow. */
enum flow_state {
	FLOW_OPENED = 1,    /* created by a SYN or INIT */
	FLOW_ANSWERED = 2,  /* the backend has sent something other than a reset */
	FLOW_CONFIRMED = 4, /* the client has sent a packet after the first one */
	FLOW_CLIENT_FIN = 8,
	FLOW_SERVER_FIN = 16,
	FLOW_RESET = 32,	 /* by the backend */
	FLOW_DOUBTED = 64,	 /* a SYN came directly to the backend, whose reply decides */
	FLOW_CLIENT_RESET = 128, /* until the backend continues */
} __attribute__((packed));

#define FLOW_ENDED (FLOW_RESET | FLOW_CLIENT_RESET)

#define FLOW_CLOSED (FLOW_CLIENT_FIN | FLOW_SERVER_FIN)

/* How long a flow of each kind is retained after its client's last packet, in
 * FLOW_TICKs. The values are those of IPVS (net/netfilter/ipvs) where it has such a
 * state.
 */
#define FLOW_TICK_SHIFT 30 /* 1.07 s, from ns without a division */
#define FLOW_KEEP_ESTABLISHED 840
#define FLOW_KEEP_DATAGRAMS 280
#define FLOW_KEEP_CLOSED 60
#define FLOW_KEEP_OPENING 60
#define FLOW_KEEP_UNANSWERED 28
#define FLOW_KEEP_RESET 10
/* A flow used within this time is not evicted for a new one in a full set. */
#define FLOW_IN_USE 60
/* The same for datagrams whose client uses its port for another VIP. */
#define FLOW_DATAGRAMS_IN_USE 10

struct server_flow {
	struct addr client;
	struct addr server; /* the address of the backend itself */
	struct addr vip;
	__be16 client_port;
	__be16 server_port;
	__be16 vip_port;
	__u8 proto;
	__u8 overhead; /* bytes that the load balancer may add to each packet */
	__u32 seen;    /* the client's last packet: CLOCK_MONOTONIC in FLOW_TICKs */
	enum server_method method;
	enum flow_state state;
	enum server_place place;
	__u8 generation; /* counts writes to this entry */
};

_Static_assert(sizeof(struct server_flow) == 64, "a flow is a cache line");

struct server_flow_set {
	struct bpf_spin_lock lock; /* held by writers */
	__u32 tag[FLOW_WAYS];	   /* 0: free */
	__u32 best, at; /* of the search for an entry, which the verifier forgets elsewhere */
	__u16 opened[FLOW_WAYS]; /* of the SYN that made a flow DOUBTED: opening_number */
	__u32 zero;
	struct server_flow flow[FLOW_WAYS];
};

_Static_assert(sizeof(struct server_flow_set) == 64 + FLOW_WAYS * 64, "tags are a cache line");

/* The agent chooses the number of sets. Mappable, so that its lines align with cache
 * lines.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct server_flow_set);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_MMAPABLE);
} flow_table SEC(".maps");

/* max_entries of flow_table. */
volatile const __u32 flow_sets = 65536;

/* The key of the table, so that no sender can fill a set on purpose. The agent
 * generates it once and stores it with the table. These values are for benchmarks.
 * Not a constant, because the compiler would inline it.
 */
__u64 flow_key[HASH_KEYS] SEC(".data.key") = {
	HASH_K0,	   HASH_K1,	      HASH_K2,		 HASH_K3,
	HASH_K4,	   HASH_K0 ^ HASH_K1, HASH_K1 ^ HASH_K2, HASH_K2 ^ HASH_K3,
	HASH_K3 ^ HASH_K4, HASH_K4 ^ HASH_K1,
};

static __always_inline __u32 table_hash(const struct tuple *t)
{
	return hash_finish(hash_keyed(flow_key, t, true));
}

static __always_inline __u32 flow_clock(void)
{
	return bpf_ktime_get_coarse_ns() >> FLOW_TICK_SHIFT;
}

static __always_inline __u32 flow_tag(__u32 hash)
{
	return hash | 1;
}

static __always_inline struct server_flow_set *flow_set(__u32 hash)
{
	__u32 i = hash_slot(hash, flow_sets);

	return bpf_map_lookup_elem(&flow_table, &i);
}

/* Branchless: a full comparison costs less than a mispredicted branch. */
static __always_inline bool flow_is(const struct server_flow *f, const struct tuple *t)
{
	const addr_half *a = (const addr_half *)&f->client, *b = (const addr_half *)&t->src;
	__u64 differ = (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]);

	return (differ | (f->client_port ^ t->sport) | (f->server_port ^ t->dport) |
		(f->proto ^ t->proto)) == 0;
}

/* A flow found without the lock. */
struct found {
	struct server_flow *flow; /* NULL: none */
	const __u32 *tag;
	const __u16 *opened;
	__u32 had;
	__u8 generation;
};

static __always_inline bool find_flow(struct found *r, const struct tuple *t)
{
	__u32 hash = table_hash(t);
	struct server_flow_set *set = flow_set(hash);

	r->flow = NULL;
	if (!set)
		return false;
	r->had = flow_tag(hash);
#pragma unroll
	for (int i = 0; i < FLOW_WAYS; i++) {
		__u32 tag = *(volatile __u32 *)&set->tag[i];
		struct server_flow *f;

		if (tag != r->had)
			continue;
		f = (void *)&set->flow[i] + order_after(tag);
		r->generation = *(volatile __u8 *)&f->generation;
		if (!flow_is((void *)f + order_after(r->generation), t))
			continue;
		r->tag = &set->tag[i];
		r->opened = &set->opened[i];
		r->flow = f;
		return true;
	}
	return false;
}

/* Reports whether everything read since find_flow belongs to that flow. */
static __always_inline bool flow_holds(const struct found *r)
{
	order_loads();
	return *(volatile const __u32 *)r->tag == r->had &&
	       *(volatile __u8 *)&r->flow->generation == r->generation;
}

static __always_inline bool flow_established(const struct server_flow *f)
{
	return (f->state & (FLOW_ANSWERED | FLOW_CONFIRMED)) == (FLOW_ANSWERED | FLOW_CONFIRMED) &&
	       !(f->state & FLOW_ENDED) && (f->state & FLOW_CLOSED) != FLOW_CLOSED;
}

static __always_inline __u32 flow_keep(const struct server_flow *f)
{
	if (f->state & FLOW_ENDED)
		return FLOW_KEEP_RESET;
	if ((f->state & FLOW_CLOSED) == FLOW_CLOSED)
		return FLOW_KEEP_CLOSED;
	if (!(f->state & FLOW_ANSWERED))
		return FLOW_KEEP_UNANSWERED;
	if (!(f->state & FLOW_CONFIRMED))
		return FLOW_KEEP_OPENING;
	return f->proto == IPPROTO_UDP ? FLOW_KEEP_DATAGRAMS : FLOW_KEEP_ESTABLISHED;
}

static __always_inline bool flow_alive(const struct server_flow *f, __u32 now)
{
	return !(f->state & FLOW_ENDED) && (f->state & FLOW_CLOSED) != FLOW_CLOSED &&
	       now - f->seen < flow_keep(f);
}

/* Reports whether a flow gives way to one with the same ports through another VIP. Clients
 * with datagrams, such as DNS resolvers, use a port for another VIP whenever they like: the
 * last one counts, unless the flow has packets in both directions and is in use.
 */
static __always_inline bool flow_yields(const struct server_flow *f, __u32 now)
{
	if (!flow_alive(f, now))
		return true;
	return f->proto == IPPROTO_UDP &&
	       (!flow_established(f) || now - f->seen >= FLOW_DATAGRAMS_IN_USE);
}

/* The value of an entry: the lowest is taken. From FLOW_WORTH_KEPT on it is never
 * taken.
 */
enum flow_worth {
	FLOW_WORTH_OWN, /* has this very flow, perhaps of another VIP */
	FLOW_WORTH_FREE,
	FLOW_WORTH_OVER,
	FLOW_WORTH_EARLY,
	FLOW_WORTH_IDLE = 1 << 12,
	FLOW_WORTH_KEPT = 1 << 13,
};

static __always_inline __u32 flow_worth(const struct server_flow *f, __u32 tag, __u32 now)
{
	__u32 age = now - f->seen, keep = flow_keep(f);

	if (!tag)
		return FLOW_WORTH_FREE;
	if (age >= keep)
		return FLOW_WORTH_OVER;
	if (!flow_established(f))
		return FLOW_WORTH_EARLY + keep - age;
	return (age < FLOW_IN_USE ? FLOW_WORTH_KEPT : FLOW_WORTH_IDLE) + keep - age;
}

/* Stores a flow. Returns false if its set is full of flows in use. */
__noinline bool remember_flow(const struct server_flow *f, const struct tuple *t)
{
	__u32 hash, best, at;
	struct server_flow_set *set;
	__u8 generation;

	if (!f || !t)
		return false;
	hash = table_hash(t);
	set = flow_set(hash);
	if (!set)
		return false;
	bpf_spin_lock(&set->lock);
	set->best = ~0U;
	barrier();
#pragma unroll
	for (int i = 0; i < FLOW_WAYS; i++) {
		__u32 worth = flow_worth(&set->flow[i], set->tag[i], f->seen);

		if (set->tag[i] == flow_tag(hash) && flow_is(&set->flow[i], t))
			worth = FLOW_WORTH_OWN;
		if (worth < set->best) {
			set->best = worth;
			set->at = i;
		}
		barrier();
	}
	best = set->best;
	at = set->at & (FLOW_WAYS - 1);
	if (best < FLOW_WORTH_KEPT) {
		generation = set->flow[at].generation + 1;
		order_store32(&set->tag[at], 0);
		set->flow[at] = *f;
		set->flow[at].generation = generation;
		order_store32(&set->tag[at], flow_tag(hash));
	}
	bpf_spin_unlock(&set->lock);
	if (best >= FLOW_WORTH_KEPT)
		return false;
	count(SERVER_COUNTER_FLOW_MADE);
	if (best >= FLOW_WORTH_EARLY)
		count(SERVER_COUNTER_FLOW_EVICTED);
	return true;
}

/* Deletes a flow, or adds and removes bits of its state. For FLOW_DOUBTED, opened is
 * the SYN's number. Reports whether the flow existed.
 */
__noinline bool change_flow(const struct tuple *t, __u8 add, __u8 take, bool forget, __u16 opened)
{
	struct server_flow_set *set;
	bool was = false;
	__u32 hash;

	if (!t)
		return false;
	hash = table_hash(t);
	set = flow_set(hash);
	if (!set)
		return false;
	bpf_spin_lock(&set->lock);
#pragma unroll
	for (int i = 0; i < FLOW_WAYS; i++) {
		if (set->tag[i] != flow_tag(hash) || !flow_is(&set->flow[i], t))
			continue;
		was = true;
		if (forget)
			set->tag[i] = 0;
		else
			set->flow[i].state = (set->flow[i].state & ~take) | add;
		if (add & FLOW_DOUBTED)
			set->opened[i] = opened;
	}
	bpf_spin_unlock(&set->lock);
	return was;
}

static __always_inline bool forget_flow(const struct tuple *t)
{
	return change_flow(t, 0, 0, true, 0);
}

/* Writes only changes: a write takes the cache line from other CPUs. */
static __always_inline void trace_flow(const struct server_flow *f, const struct tuple *t,
				       __u8 state)
{
	if ((f->state | state) != f->state)
		change_flow(t, state, 0, false, 0);
}

static __always_inline void unnote_flow(const struct server_flow *f, const struct tuple *t,
					__u8 state)
{
	if (f->state & state)
		change_flow(t, 0, state, false, 0);
}

static __always_inline void touch_flow(struct server_flow *f, __u32 now)
{
	if (f->seen != now)
		f->seen = now;
}

#endif
