/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Chooses a client's endpoint: a random one, or the last one if the service has
 * affinity and the endpoint still exists.
 */
#ifndef FAIRLEAD_PROXY_CHOOSE_H
#define FAIRLEAD_PROXY_CHOOSE_H

#include "proxy/maps.h"

#define SECOND 1000000000ULL

/* The identity of a client. */
enum client_kind {
	CLIENT_ADDRESS = 0, /* of a packet */
	CLIENT_NETNS = 1,   /* a pod, or the node: a socket has no address yet */
	CLIENT_SOCKET = 2,  /* an unconnected one */
} __attribute__((packed));

struct affinity_key {
	struct addr client; /* or a cookie in its last two words */
	__u32 id;	    /* the service's */
	enum client_kind kind;
	__u8 zero[3];
};

struct affinity {
	struct addr addr; /* the endpoint's */
	__be16 port;
	__u8 zero[6];
	__u64 used; /* CLOCK_MONOTONIC in ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct affinity_key);
	__type(value, struct affinity);
} affinities SEC(".maps");

static __always_inline void client_from_cookie(struct affinity_key *k, __u64 cookie)
{
	k->client.word[0] = 0;
	k->client.word[1] = 0;
	k->client.word[2] = (__u32)cookie;
	k->client.word[3] = cookie >> 32;
}

static __always_inline struct target *target_at(__u32 i)
{
	return bpf_map_lookup_elem(&targets, &i);
}

/* A search for an address and port in a run, which is sorted by them. */
struct search {
	__u64 high, low; /* the address, in host order */
	__u32 port;
	__u32 from, to; /* the remaining interval */
	__u32 found;	/* 0 or 1 */
};

#define SEARCH_STEPS 17 /* a run has less than 1 << 16 endpoints */

static long search_step(__u32 step __attribute__((unused)), void *context)
{
	struct search *s = context;
	__u32 middle = s->from + (s->to - s->from) / 2;
	const struct target *t;
	const addr_half *half;
	__u64 high, low;
	__u32 port;

	if (s->from >= s->to)
		return 1;
	t = target_at(middle);
	if (!t)
		return 1;
	half = (const addr_half *)&t->addr;
	high = bpf_be64_to_cpu(half[0]);
	low = bpf_be64_to_cpu(half[1]);
	port = bpf_ntohs(t->port);
	if (high == s->high && low == s->low && port == s->port) {
		s->found = 1;
		return 1;
	}
	if (high < s->high ||
	    (high == s->high && (low < s->low || (low == s->low && port < s->port))))
		s->from = middle + 1;
	else
		s->to = middle;
	return 0;
}

/* Finds an endpoint in a part of the table, or returns NULL. */
static __always_inline const struct target *find_among(__u32 first, __u32 count,
						       const struct addr *a, __be16 port)
{
	struct search s = {
		.high = bpf_be64_to_cpu((__u64)a->word[1] << 32 | a->word[0]),
		.low = bpf_be64_to_cpu((__u64)a->word[3] << 32 | a->word[2]),
		.port = bpf_ntohs(port),
		.from = first,
		.to = first + count,
	};

	bpf_loop(SEARCH_STEPS, search_step, &s, 0);
	return s.found ? target_at(s.from + (s.to - s.from) / 2) : NULL;
}

/* Finds it among those that accept new flows. */
static __always_inline const struct target *find_in_run(const struct run *r, const struct addr *a,
							__be16 port)
{
	return find_among(r->first, r->count, a, port);
}

/* Reports whether a flow may continue on an endpoint. */
static __always_inline bool keeps(const struct run *r, const struct addr *a, __be16 port)
{
	return find_in_run(r, a, port) || find_among(r->first + r->count, r->keeps, a, port);
}

/* Copies the endpoint that k had, if it was used within this many seconds and still
 * exists. A flow that continues may keep one that accepts no new flows.
 */
static __always_inline bool recall(void *remembered, const struct run *r, __u32 seconds,
				   const struct affinity_key *k, bool goes_on,
				   struct affinity *chosen)
{
	struct affinity *had = bpf_map_lookup_elem(remembered, k);
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!had)
		return false;
	chosen->addr = had->addr;
	chosen->port = had->port;
	/* Another CPU may have used it since the clock was read. */
	if ((__s64)(now - had->used) >= (__s64)(seconds * SECOND))
		return false;
	if (!(goes_on ? keeps(r, &chosen->addr, chosen->port)
		      : find_in_run(r, &chosen->addr, chosen->port) != NULL))
		return false;
	had->used = now;
	chosen->used = now;
	return true;
}

/* Chooses an endpoint from a run, if it has any. With affinity, the client k returns
 * to the same one for this many seconds; 0: no affinity.
 */
static __always_inline bool choose_target(const struct run *r, __u32 seconds,
					  const struct affinity_key *k, struct affinity *chosen)
{
	const struct target *t;

	if (!r->count)
		return false;
	if (seconds && recall(&affinities, r, seconds, k, false, chosen))
		return true;
	t = target_at(r->first + (__u32)((__u64)bpf_get_prandom_u32() * r->count >> 32));
	if (!t)
		return false;
	chosen->addr = t->addr;
	chosen->port = t->port;
	chosen->used = bpf_ktime_get_coarse_ns();
	if (seconds)
		bpf_map_update_elem(&affinities, k, chosen, BPF_ANY);
	return true;
}

#endif
