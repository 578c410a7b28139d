/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Source ranges and rate limits of a frontend. Checked before anything else, and only
 * for frontends that have them.
 *
 * A limit is a token bucket that holds a tenth of a second, at least eight packets.
 * It is stored as one number: the time at which the bucket will be full again (the
 * virtual scheduling of GCRA, ITU-T I.371). That time is never further ahead of now
 * than the bucket's depth, so a value further ahead is stale: clocks may wrap, and
 * entries that were never cleared are harmless.
 */
#ifndef FAIRLEAD_BALANCER_POLICY_H
#define FAIRLEAD_BALANCER_POLICY_H

#include "copy.h"
#include "count.h"
#include "hash.h"
#include "maps.h"

/* The ranges of one frontend. Four lists share one trie: the key starts with the list. */
enum guard_list {
	GUARD_ALLOW = 1,
	GUARD_DENY = 2,
	GUARD_V6 = 4, /* of the address: ::/0 contains no IPv4 address */
};

struct guard_range_key {
	__u32 prefixlen; /* in bits, including 32 for the list */
	enum guard_list list;
	struct addr addr;
};

#define GUARD_RANGES 65536

struct guard_trie {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GUARD_RANGES);
	__uint(key_size, sizeof(struct guard_range_key));
	__type(value, __u32); /* its position in the configured list, from 1; 0: in none */
};

/* If no source is listed as allowed, all are: through ranges that are in no list.
 * Each frontend has its own trie. A change replaces the trie.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32); /* the frontend's id */
	__array(values, struct guard_trie);
} guard_ranges SEC(".maps");

/* One limit, in the units of its bucket's clock. step 0: unlimited. */
struct guard_limit {
	__u64 step;  /* cost of one packet */
	__u64 depth; /* of the bucket */
};

struct guard_limits {
	__u32 client_packets, client_opens, packets, opens; /* per second, as configured */
	/* Per client: sixteenths of a microsecond, 32 bits. Total: sixteenths of a
	 * nanosecond.
	 */
	struct guard_limit each_packet, each_open, all_packets, all_opens;
	__u32 batch_packets; /* tokens that a CPU takes at a time */
	__u32 batch_opens;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32); /* the frontend's id */
	__type(value, struct guard_limits);
} guard_limits SEC(".maps");

/* A frontend's buckets for all clients together, a cache line each. */
struct guard_bucket {
	__u64 full; /* time when full */
	__u64 zero[7];
};

struct guard_buckets {
	struct guard_bucket packets, opens;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32); /* the frontend's id */
	__type(value, struct guard_buckets);
} guard_buckets SEC(".maps");

/* Tokens that this CPU has taken and not yet used. */
struct guard_credit {
	__u32 packets;
	__u32 opens;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32); /* the frontend's id */
	__type(value, struct guard_credit);
} guard_credit SEC(".maps");

/* Buckets of single clients. A set is one cache line, searched completely. A new
 * client replaces the one with the smallest debt. A flood of new addresses thus only
 * makes the load balancer forget debts.
 */
#define GUARD_WAYS 5
#define GUARD_SETS 32768

struct guard_client {
	__u32 tag; /* of frontend and address; 0: free */
	__u32 packets, opens;
};

struct guard_set {
	struct guard_client way[GUARD_WAYS];
	__u32 zero;
};

_Static_assert(sizeof(struct guard_set) == 64, "one cache line");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GUARD_SETS);
	__type(key, __u32);
	__type(value, struct guard_set);
} guard_clients SEC(".maps");

COPIES(guard_bucket_copies, struct guard_buckets);
COPIES(guard_credit_copies, struct guard_credit);
COPIES(guard_client_copies, struct guard_set);

/* Random, set at load, so that nobody outside can target a set. */
volatile const __u64 guard_key[2] = {HASH_K3, HASH_K4};

static __noinline bool guard_range_has(void *trie, const struct guard_range_key *key)
{
	return bpf_map_lookup_elem(trie, key);
}

/* Deny takes precedence over allow. */
static __always_inline bool guard_source(__u32 frontend, const struct packet *p)
{
	void *trie = bpf_map_lookup_elem(&guard_ranges, &frontend);
	__u32 family = addr_is_v4(&p->t.src) ? 0 : GUARD_V6;
	struct guard_range_key key = {.prefixlen = 32 + 128, .addr = p->t.src};

	if (!trie)
		return true;
	key.list = GUARD_DENY | family;
	if (guard_range_has(trie, &key))
		return false;
	key.list = GUARD_ALLOW | family;
	return guard_range_has(trie, &key);
}

/* Returns how far a client's bucket is from full, 0 if the value is stale. */
static __always_inline __u32 guard_debt(__u32 full, __u32 now, const struct guard_limit *l)
{
	__u32 debt = full - now;

	return debt > l->depth ? 0 : debt;
}

static __always_inline bool guard_each(__u32 *full, __u32 now, const struct guard_limit *l)
{
	__u32 debt = guard_debt(*full, now, l);

	if (debt + l->step > l->depth)
		return false;
	*full = now + debt + l->step;
	return true;
}

static __always_inline struct guard_client *guard_client(struct guard_set *set, __u32 tag,
							 __u32 now, const struct guard_limits *l)
{
	__u32 least = ~0u, debt;
	struct guard_client *lightest = &set->way[0];

#pragma unroll
	for (int i = 0; i < GUARD_WAYS; i++) {
		struct guard_client *c = &set->way[i];

		if (c->tag == tag)
			return c;
		debt = guard_debt(c->packets, now, &l->each_packet);
		debt += guard_debt(c->opens, now, &l->each_open);
		if (debt < least) {
			least = debt;
			lightest = c;
		}
	}
	lightest->tag = tag;
	lightest->packets = now;
	lightest->opens = now;
	return lightest;
}

static __always_inline __u64 guard_hash(__u32 frontend, const struct addr *src)
{
	__u64 h = (hash_word(&src->word[0]) ^ guard_key[0]) * HASH_K0;

	h ^= (hash_word(&src->word[2]) ^ guard_key[1]) * HASH_K1;
	h ^= h >> 32;
	h += (frontend ^ guard_key[0]) * HASH_K2;
	h *= HASH_K0;
	h ^= h >> 29;
	h *= HASH_K1;
	return h ^ h >> 32;
}

static __always_inline bool guard_of_client(const struct packet *p, __u32 frontend, bool opens,
					    const struct guard_limits *l, __u64 now_ns)
{
	__u64 hash = guard_hash(frontend, &p->t.src);
	__u32 index = hash % GUARD_SETS;
	struct guard_set *set = bpf_map_lookup_elem(&guard_clients, &index);
	__u32 now = now_ns * 2 / 125; /* 16 per microsecond */
	struct guard_client *c;

	set = writable(guard_client_copies, index, set);
	if (!set)
		return true;
	c = guard_client(set, hash >> 32 | 1, now, l);
	if (opens && l->each_open.step && !guard_each(&c->opens, now, &l->each_open))
		return false;
	return !l->each_packet.step || guard_each(&c->packets, now, &l->each_packet);
}

/* Takes a batch out of a bucket shared by all CPUs. If other CPUs keep winning the
 * race, the packet passes without a token: the others have drained the bucket enough.
 */
static __always_inline bool guard_all(__u64 *full, __u32 *credit, __u32 batch,
				      const struct guard_limit *l, __u64 now)
{
	__u64 old, debt;

	if (*credit) {
		(*credit)--;
		return true;
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		old = *(volatile __u64 *)full;
		debt = old - now > l->depth ? 0 : old - now;
		if (debt + l->step * batch > l->depth)
			return false;
		if (__sync_val_compare_and_swap(full, old, now + debt + l->step * batch) == old) {
			*credit = batch - 1;
			return true;
		}
	}
	return true;
}

static __always_inline bool guard_of_all(__u32 frontend, bool opens, const struct guard_limits *l,
					 __u64 now)
{
	struct guard_buckets *b = bpf_map_lookup_elem(&guard_buckets, &frontend);
	struct guard_credit *credit = bpf_map_lookup_elem(&guard_credit, &frontend);

	b = writable(guard_bucket_copies, frontend, b);
	credit = writable(guard_credit_copies, frontend, credit);
	if (!b || !credit)
		return true;
	if (opens && l->all_opens.step &&
	    !guard_all(&b->opens.full, &credit->opens, l->batch_opens, &l->all_opens, now))
		return false;
	return !l->all_packets.step || guard_all(&b->packets.full, &credit->packets,
						 l->batch_packets, &l->all_packets, now);
}

/* Per-client limits come first: packets that they drop must not use up the total. */
static __always_inline bool guard_rate(__u32 frontend, const struct packet *p)
{
	struct guard_limits *l = bpf_map_lookup_elem(&guard_limits, &frontend);
	bool opens = p->flags & TCP_OPENS || p->t.proto == IPPROTO_UDP;
	__u64 now;

	if (!l)
		return true;
	now = bpf_ktime_get_coarse_ns();
	if ((l->each_packet.step || l->each_open.step) &&
	    !guard_of_client(p, frontend, opens, l, now))
		return false;
	return (!l->all_packets.step && !l->all_opens.step) ||
	       guard_of_all(frontend, opens, l, now * 16);
}

/* Returns XDP_DROP, already counted, or 0 if the packet may pass. */
__noinline int guard(struct xdp_md *ctx, const struct packet *p, const struct frontend *f)
{
	if (!ctx || !p || !f) /* for the verifier */
		return 0;
	if (!guard_source(f->id, p))
		return drop(ctx, DROP_SOURCE_DENIED);
	if (!guard_rate(f->id, p))
		return drop(ctx, DROP_RATE_LIMITED);
	trace_event(TRACE_GUARD, !!bpf_map_lookup_elem(&guard_limits, &f->id), 0);
	return 0;
}

/* The same for a packet that another load balancer handed over. handed is 0 for any
 * other packet. A packet that comes back has already been charged here.
 */
__noinline int guard_handed(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			    __u8 handed)
{
	if (!ctx || !p || !f) /* for the verifier */
		return 0;
	if (handed != PACKET_LAST)
		return guard(ctx, p, f);
	return guard_source(f->id, p) ? 0 : drop(ctx, DROP_SOURCE_DENIED);
}

#endif
