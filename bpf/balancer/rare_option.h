/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The list of endpoints that the rare program's packets carry, built in
 * r->front: as an option of an IP header (option.h) or as private data of GUE.
 */
#ifndef FAIRLEAD_BALANCER_RARE_OPTION_H
#define FAIRLEAD_BALANCER_RARE_OPTION_H

#include "option.h"
#include "scratch.h"

/* Bytes of an endpoint. */
#define ENDPOINT_SIZE(v6) ((v6) ? 18 : 6)

/* The chain of who was chosen, or NULL where nobody else may have the flow. */
static __always_inline const struct chain *rare_chain(const struct rare *r)
{
	__u32 index = r->who.chain;
	const struct chain *c;

	if (!index)
		return NULL;
	c = bpf_map_lookup_elem(&chains, &index);
	return c && c->n > r->who.skip && c->n <= CHAIN_MAX ? c : NULL;
}

/* How many endpoints the chain has yet. */
static __always_inline __u32 rare_chain_left(const struct rare *r, const struct chain *c)
{
	return c ? c->n - r->who.skip : 0;
}

/* Puts the VIP and its port as the first endpoint. */
static __always_inline void endpoint_put(__u8 *to, const struct tuple *t, bool v6)
{
	if (v6) {
		__builtin_memcpy(to, &t->dst, 16);
		__builtin_memcpy(to + 16, &t->dport, 2);
	} else {
		__builtin_memcpy(to, &t->dst.word[3], 4);
		__builtin_memcpy(to + 4, &t->dport, 2);
	}
}

/* Copies what the chain has yet; what lies behind is for the caller to clear. */
static __always_inline void chain_put(__u8 *to, const struct chain *c, bool skip, bool v6)
{
	if (!skip)
		__builtin_memcpy(to, c->bytes, CHAIN_BYTES);
	else if (v6)
		__builtin_memcpy(to, c->bytes + 18, CHAIN_BYTES - 18);
	else
		__builtin_memcpy(to, c->bytes + 6, CHAIN_BYTES - 6);
}

/* Clears the padding, of less than eight bytes, behind what r->front has. */
static __always_inline void front_pad(struct rare *r, __u32 from)
{
	if (from <= FRONT_MAX - 8)
		__builtin_memset(r->front + from, 0, 8);
}

/* The bytes of an option with so many endpoints. */
static __always_inline __u32 option_bytes(__u32 n, bool v6)
{
	if (!n)
		return 0;
	return v6 ? (4 + 18 * n + 7) & ~7 : (2 + 6 * n + 3) & ~3;
}

/* Builds the option at r->front + at, a constant: with the VIP first if
 * tells_vip, then the chain. nexthdr is IPv6's. Gives its bytes.
 */
static __always_inline __u32 option_put(struct rare *r, __u32 at, const struct chain *c,
					bool tells_vip, __u8 nexthdr, bool v6)
{
	const __u32 header = v6 ? 4 : 2;
	__u32 n = rare_chain_left(r, c) + tells_vip;
	__u32 bytes = option_bytes(n, v6), used = header + ENDPOINT_SIZE(v6) * n;
	__u8 *o = r->front + at, *list = o + header;

	if (!n)
		return 0;
	if (tells_vip) {
		endpoint_put(list, &r->p.t, v6);
		if (c)
			chain_put(list + ENDPOINT_SIZE(v6), c, r->who.skip, v6);
	} else if (c) {
		chain_put(list, c, r->who.skip, v6);
	}
	front_pad(r, at + used);
	if (!v6) {
		o[0] = OPTION4_TYPE;
		o[1] = used;
		return bytes;
	}
	o[0] = nexthdr;
	o[1] = bytes / 8 - 1;
	o[2] = OPTION6_TYPE;
	o[3] = ENDPOINT_SIZE(true) * n;
	if (bytes > used && at + used + 1 < FRONT_MAX) { /* PadN (RFC 8200, 4.2) */
		r->front[at + used] = 1;
		r->front[at + used + 1] = bytes - used - 2;
	}
	return bytes;
}

#endif
