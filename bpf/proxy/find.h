/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the service that a client addresses.
 *
 * The kernel reuses a hash map element's memory immediately, so an entry may change
 * to another service's while a program reads it. A service therefore has a checksum
 * over its key and itself, and is copied before it is used.
 */
#ifndef FAIRLEAD_PROXY_FIND_H
#define FAIRLEAD_PROXY_FIND_H

#include "hash.h"
#include "proxy/maps.h"

typedef __u32 any_word __attribute__((may_alias));

#define SERVICE_WORDS (offsetof(struct service, check) / sizeof(__u32))

/* Its counterpart is checkOf in dataplane/proxy. */
static __always_inline __u32 service_check(const struct service_key *k, const struct service *s)
{
	const any_word *words = (const any_word *)k;
	__u64 sum = 0, odd = HASH_K0;

#pragma unroll
	for (int i = 0; i < (int)(sizeof(*k) / sizeof(__u32)); i++, odd *= HASH_K0)
		sum += words[i] * odd;
	words = (const any_word *)s;
#pragma unroll
	for (int i = 0; i < (int)SERVICE_WORDS; i++, odd *= HASH_K0)
		sum += words[i] * odd;
	return sum >> 32;
}

#define FIND_TRIES 4

/* Copies the service with exactly this key. */
static __always_inline bool find_service(const struct service_key *k, struct service *s)
{
	for (int i = 0; i < FIND_TRIES; i++) {
		const struct service *held = bpf_map_lookup_elem(&services, k);

		if (!held)
			return false;
		__builtin_memcpy(s, held, sizeof(*s));
		barrier(); /* check and use only the copy */
		if (likely(service_check(k, s) == s->check))
			return true;
	}
	return false;
}

/* The same for the port on all of the node's addresses, of k's family. The caller has
 * verified that k has one of them.
 */
static __always_inline bool find_node_port(struct service_key *k, struct service *s)
{
	bool v4 = addr_is_v4(&k->addr);

	__builtin_memset(&k->addr, 0, sizeof(k->addr));
	if (v4)
		k->addr.word[2] = V4_MAPPED_PREFIX;
	return find_service(k, s);
}

static __always_inline bool is_node_address(const struct addr *a)
{
	return bpf_map_lookup_elem(&node_addresses, a) != NULL;
}

/* Reports whether a service with source ranges serves this client. */
static __always_inline bool is_allowed(const struct service *s, const struct addr *client)
{
	struct source_range_key k = {.prefixlen = 160, .id = s->id, .addr = *client};

	if (!(s->flags & SERVICE_ALLOW))
		return true;
	return !(s->flags & SERVICE_CLOSED) && bpf_map_lookup_elem(&source_ranges, &k) != NULL;
}

static __always_inline void count_connection(const struct service *s)
{
	__u64 *n = bpf_map_lookup_elem(&connections, &s->id);

	if (n)
		__sync_fetch_and_add(n, 1);
}

#endif
