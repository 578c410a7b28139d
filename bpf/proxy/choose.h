/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which target a client gets: one at random, or the one that it had last where
 * the service has affinity and the target is still there.
 */
#ifndef FAIRLEAD_PROXY_CHOOSE_H
#define FAIRLEAD_PROXY_CHOOSE_H

#include "proxy/maps.h"

#define SECOND 1000000000ULL

/* Who a client is. */
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
	struct addr addr; /* the target's */
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
	__u32 from, to; /* it lies in here, if anywhere */
	__u32 found;	/* 0 or 1 */
};

#define SEARCH_STEPS 17 /* a run has less than 1 << 16 targets */

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

/* Where in a run a target is, or NULL. */
static __always_inline const struct target *find_in_run(const struct run *r, const struct addr *a,
							__be16 port)
{
	struct search s = {
		.high = bpf_be64_to_cpu((__u64)a->word[1] << 32 | a->word[0]),
		.low = bpf_be64_to_cpu((__u64)a->word[3] << 32 | a->word[2]),
		.port = bpf_ntohs(port),
		.from = r->first,
		.to = r->first + r->count,
	};

	bpf_loop(SEARCH_STEPS, search_step, &s, 0);
	return s.found ? target_at(s.from + (s.to - s.from) / 2) : NULL;
}

static __always_inline bool is_in_run(const struct run *r, const struct addr *a, __be16 port)
{
	return find_in_run(r, a, port) != NULL;
}

/* Chooses of a run that has targets, for a client who is asked to come back to
 * the same one for so many seconds; 0: no client is. k says who that is, and
 * remembered is the map that knows.
 */
static __always_inline bool choose_by(void *remembered, const struct run *r, __u32 seconds,
				      const struct affinity_key *k, struct affinity *chosen)
{
	const struct target *t;
	struct affinity *had;

	chosen->used = 0;
	if (seconds) {
		chosen->used = bpf_ktime_get_coarse_ns();
		had = bpf_map_lookup_elem(remembered, k);
		if (had) {
			chosen->addr = had->addr;
			chosen->port = had->port;
			/* Another CPU may have used it since the clock was read. */
			if ((__s64)(chosen->used - had->used) < (__s64)(seconds * SECOND) &&
			    is_in_run(r, &chosen->addr, chosen->port)) {
				had->used = chosen->used;
				return true;
			}
		}
	}
	t = target_at(r->first + (__u32)((__u64)bpf_get_prandom_u32() * r->count >> 32));
	if (!t)
		return false;
	chosen->addr = t->addr;
	chosen->port = t->port;
	if (seconds)
		bpf_map_update_elem(remembered, k, chosen, BPF_ANY);
	return true;
}

static __always_inline bool choose_target(const struct run *r, __u32 seconds,
					  const struct affinity_key *k, struct affinity *chosen)
{
	return choose_by(&affinities, r, seconds, k, chosen);
}

#endif
