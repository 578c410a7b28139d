/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Next hops by the backend's address. A frontend that tracks flows has entries of its own
 * for its backends. 10,000 frontends with the same 100 backends have 1 M entries, each of
 * which would query the kernel for its own next hop. They find it here.
 */
#ifndef FAIRLEAD_BALANCER_ADDRESS_HOP_H
#define FAIRLEAD_BALANCER_ADDRESS_HOP_H

#include "addr.h"
#include "hash.h"
#include "maps.h"
#include "trace_event.h"

/* The hop's generation is routes_version alone. One cache line. */
struct address_hop {
	struct next_hop hop;
	struct addr to;
	__u64 zero;
};

_Static_assert(sizeof(struct address_hop) == 64, "one cache line");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct address_hop);
} address_hops SEC(".maps");

volatile const __u32 address_hop_count = 1; /* entries in address_hops */

static __always_inline bool next_hop_is_kept(struct xdp_md *ctx, const struct next_hop *hop,
					     __u32 generation)
{
	return (__s64)(hop->tick - bpf_jiffies64()) >= 0 && hop->generation == generation &&
	       hop->ingress == ctx->ingress_ifindex;
}

/* Fibonacci hashing: addresses in sequence have entries of their own. */
static __always_inline struct address_hop *address_hop_at(const struct addr *a)
{
	__be32 sum = a->word[3] ^ a->word[2] ^ a->word[1] ^ a->word[0];
	__u32 place = hash_slot(bpf_ntohl(sum) * 0x9e3779b1, address_hop_count);

	return bpf_map_lookup_elem(&address_hops, &place);
}

/* Returns the next hop to a backend as of a version of the routes, or NULL if none is cached. A
 * traced packet always queries the kernel.
 */
static __always_inline struct next_hop *address_hop_get(struct xdp_md *ctx,
							const struct server *server, __u32 version)
{
	struct address_hop *h = tracing ? NULL : address_hop_at(&server->addr);

	if (!h || !next_hop_is_kept(ctx, &h->hop, version) || !addr_equal(&h->to, &server->addr))
		return NULL;
	return &h->hop;
}

/* Copies it to the backend's own entry. */
static __always_inline bool address_hop_copy(struct xdp_md *ctx, const struct server *server,
					     struct next_hop *own, __u32 version)
{
	struct next_hop *hop = address_hop_get(ctx, server, version);

	if (!hop)
		return false;
	*own = *hop;
	own->generation = server->generation + version;
	return true;
}

/* Stores what is in the backend's own entry. */
static __always_inline void address_hop_put(const struct server *server, const struct next_hop *own,
					    __u32 version)
{
	struct address_hop *h = tracing ? NULL : address_hop_at(&server->addr);

	if (!h)
		return;
	h->to = server->addr;
	h->hop = *own;
	h->hop.generation = version;
}

#endif
