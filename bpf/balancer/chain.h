/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Writes lists of endpoints into a packet: the Fairlead option (option.h) in an IP
 * header, and the private data of GUE. A chain is stored ready to copy. The copy
 * has one step for each possible length, so that every access is at a constant
 * offset.
 */
#ifndef FAIRLEAD_BALANCER_CHAIN_H
#define FAIRLEAD_BALANCER_CHAIN_H

#include "choose.h"
#include "option.h"

static __always_inline __u32 chain_length(const struct chain *c)
{
	if (!c)
		return 0;
	return c->n < CHAIN_MAX ? c->n : CHAIN_MAX;
}

/* Copies n IPv4 endpoints and their padding after two more bytes. Returns false if
 * the frame is too short.
 */
static __always_inline bool endpoints_copy_v4(void *to, const void *end, const void *from, __u32 n)
{
	if (n == 0)
		return true;
	if (to + 8 > end)
		return false;
	*(may_alias_u64 *)to = *(const may_alias_u64 *)from;
	if (n == 1)
		return true;
	if (to + 12 > end)
		return false;
	*(may_alias_u32 *)(to + 8) = *(const may_alias_u32 *)(from + 8);
	if (n == 2)
		return true;
	if (to + 20 > end)
		return false;
	*(may_alias_u64 *)(to + 12) = *(const may_alias_u64 *)(from + 12);
	if (n == 3)
		return true;
	if (to + 24 > end)
		return false;
	*(may_alias_u32 *)(to + 20) = *(const may_alias_u32 *)(from + 20);
	if (n == 4)
		return true;
	if (to + 32 > end)
		return false;
	*(may_alias_u64 *)(to + 24) = *(const may_alias_u64 *)(from + 24);
	return true;
}

static __always_inline void endpoint_copy_v6(void *to, const void *from)
{
	((may_alias_u64 *)to)[0] = ((const may_alias_u64 *)from)[0];
	((may_alias_u64 *)to)[1] = ((const may_alias_u64 *)from)[1];
	*(__be16 *)(to + 16) = *(const __be16 *)(from + 16);
}

/* Copies n IPv6 endpoints. Returns the end, or NULL if the frame is too short. */
static __always_inline void *endpoints_copy_v6(void *to, const void *end, const void *from, __u32 n)
{
#pragma unroll
	for (__u32 i = 0; i < CHAIN_MAX; i++) {
		if (i == n)
			break;
		if (to + ENDPOINT6_SIZE > end)
			return NULL;
		endpoint_copy_v6(to, from);
		to += ENDPOINT6_SIZE;
		from += ENDPOINT6_SIZE;
	}
	return to;
}

/* PadN (RFC 8200, 4.2) or, in GUE, zeros. */
static __always_inline bool pad(void *to, const void *end, __u32 bytes, __u16 first)
{
	if (bytes >= 2) {
		if (to + 2 > end)
			return false;
		*(__u16 *)to = first;
	}
	if (bytes >= 4) {
		if (to + 4 > end)
			return false;
		*(__u16 *)(to + 2) = 0;
	}
	if (bytes >= 6) {
		if (to + 6 > end)
			return false;
		*(__u16 *)(to + 4) = 0;
	}
	return true;
}

/* Writes the list of an outer IPv4 header: only the chain. Adds the words'
 * contribution to the header checksum to sum.
 */
static __always_inline bool option_put_v4(void *to, const void *end, const struct chain *c,
					  __u64 *sum)
{
	__u32 n = chain_length(c);
	__u16 head = OPTION4_TYPE | (OPTION4_HEAD + n * ENDPOINT4_SIZE) << 8;
	__u64 first = *(const may_alias_u64 *)((const void *)c->bytes - sizeof(head));

	if (to + 8 > end)
		return false;
	*(may_alias_u64 *)to = (first & ~0xffffULL) | head;
	*sum += c->sum + head;
	return endpoints_copy_v4(to + 8, end, c->bytes + ENDPOINT4_SIZE, n - 1);
}

static __always_inline void option6_head_put(void *to, __u32 n, __u8 nexthdr)
{
	*(may_alias_u32 *)to =
		bpf_htonl((__u32)nexthdr << 24 | (option_bytes(n, true) / 8 - 1) << 16 |
			  OPTION6_TYPE << 8 | n * ENDPOINT6_SIZE);
}

static __always_inline bool option6_pad(void *to, const void *end, __u32 n)
{
	__u32 bytes = option_bytes(n, true) - OPTION6_HEAD - n * ENDPOINT6_SIZE;

	return pad(to, end, bytes, OPTION6_PADN | (bytes - 2) << 8);
}

/* The same for IPv6. */
static __always_inline bool option_put_v6(void *to, const void *end, const struct chain *c,
					  __u8 nexthdr)
{
	__u32 n = chain_length(c);

	if (to + OPTION6_HEAD > end)
		return false;
	option6_head_put(to, n, nexthdr);
	to = endpoints_copy_v6(to + OPTION6_HEAD, end, c->bytes, n);
	return to && option6_pad(to, end, n);
}

/* Writes the list of a packet's own header: its original destination, then the
 * chain, if any.
 */
static __always_inline bool option_put_own_v4(void *to, const void *end, const struct packet *p,
					      const struct chain *c, __u64 *sum)
{
	__u32 n = chain_length(c);
	__u32 vip = addr_to_v4(&p->t.dst);
	__u16 head = OPTION4_TYPE | (OPTION4_HEAD + (n + 1) * ENDPOINT4_SIZE) << 8;

	if (to + 8 > end)
		return false;
	*(may_alias_u64 *)to = head | (__u64)vip << 16 | (__u64)p->t.dport << 48;
	*sum += (__u64)head + vip + p->t.dport;
	if (n == 0)
		return true;
	*sum += c->sum;
	return endpoints_copy_v4(to + 8, end, c->bytes, n);
}

static __always_inline bool option_put_own_v6(void *to, const void *end, const struct packet *p,
					      const struct chain *c)
{
	__u32 n = chain_length(c);

	if (to + OPTION6_HEAD + ENDPOINT6_SIZE > end)
		return false;
	option6_head_put(to, n + 1, p->t.proto);
	to += OPTION6_HEAD;
	addr_copy(to, &p->t.dst);
	*(__be16 *)(to + sizeof(struct addr)) = p->t.dport;
	to += ENDPOINT6_SIZE;
	if (n)
		to = endpoints_copy_v6(to, end, c->bytes, n);
	return to && option6_pad(to, end, n + 1);
}

#endif
