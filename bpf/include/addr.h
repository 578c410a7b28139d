/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One address format for both families: 16 bytes, IPv4 as ::ffff:a.b.c.d (RFC 4291,
 * 2.5.5.2), so that one key, one table and one function body serve both.
 */
#ifndef FAIRLEAD_ADDR_H
#define FAIRLEAD_ADDR_H

#include "common.h"

#define V4_MAPPED_PREFIX bpf_htonl(0x0000ffff)

/* struct addr is in network byte order. It has words, not bytes, so that the compiler
 * copies and compares four aligned bytes at a time.
 */
struct addr {
	__be32 word[4];
};

static __always_inline void addr_from_v4(struct addr *a, __be32 v4)
{
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = V4_MAPPED_PREFIX;
	a->word[3] = v4;
}

/* The same for an address aligned to eight bytes, in the word size in which it is
 * copied and hashed: a CPU stalls when one read spans two recent writes.
 */
typedef __u64 addr_half __attribute__((may_alias));

static __always_inline void addr_from_v4_aligned(struct addr *a, __be32 v4)
{
	union {
		__be32 word[2];
		__u64 both;
	} low = {.word = {V4_MAPPED_PREFIX, v4}};

	((addr_half *)a)[0] = 0;
	((addr_half *)a)[1] = low.both;
}

static __always_inline void addr_copy_aligned(struct addr *to, const void *from)
{
	((addr_half *)to)[0] = ((const addr_half *)from)[0];
	((addr_half *)to)[1] = ((const addr_half *)from)[1];
}

/* Copies to or from a packet, whose alignment is unknown. */
static __always_inline void addr_copy(void *to, const void *from)
{
	addr_copy_aligned(to, from);
}

static __always_inline __be32 addr_to_v4(const struct addr *a)
{
	return a->word[3];
}

static __always_inline void addr_from_v6(struct addr *a, const struct in6_addr *v6)
{
	a->word[0] = v6->in6_u.u6_addr32[0];
	a->word[1] = v6->in6_u.u6_addr32[1];
	a->word[2] = v6->in6_u.u6_addr32[2];
	a->word[3] = v6->in6_u.u6_addr32[3];
}

static __always_inline void addr_to_v6(struct in6_addr *v6, const struct addr *a)
{
	v6->in6_u.u6_addr32[0] = a->word[0];
	v6->in6_u.u6_addr32[1] = a->word[1];
	v6->in6_u.u6_addr32[2] = a->word[2];
	v6->in6_u.u6_addr32[3] = a->word[3];
}

/* Without a branch per word: each would double the verifier's paths. */
static __always_inline __u32 addr_differ(const struct addr *a, const struct addr *b)
{
	return (a->word[0] ^ b->word[0]) | (a->word[1] ^ b->word[1]) | (a->word[2] ^ b->word[2]) |
	       (a->word[3] ^ b->word[3]);
}

static __always_inline bool addr_equal(const struct addr *a, const struct addr *b)
{
	return addr_differ(a, b) == 0;
}

/* The same for an address in a map, aligned to eight bytes. */
static __always_inline bool addr_is_v4_aligned(const struct addr *a)
{
	return (((const addr_half *)a)[0] | (a->word[2] ^ V4_MAPPED_PREFIX)) == 0;
}

static __always_inline bool addr_is_v4(const struct addr *a)
{
	return (a->word[0] | a->word[1] | (a->word[2] ^ V4_MAPPED_PREFIX)) == 0;
}

/* Reports whether an IPv6 packet has an IPv4-mapped source or destination, our
 * internal format of IPv4 addresses. They must not appear on the wire, Linux rejects
 * them (ip6_rcv_core in net/ipv6/ip6_input.c), and they must not match IPv4.
 */
static __always_inline bool addrs_are_mapped(const struct addr *src, const struct addr *dst)
{
	return addr_is_v4(src) || addr_is_v4(dst);
}

static __always_inline bool addr_is_zero(const struct addr *a)
{
	return (a->word[0] | a->word[1] | a->word[2] | a->word[3]) == 0;
}

/* Addresses that no client has, but that our routers would let pass once they are
 * replaced (RFC 1812, 5.3.7).
 */
static __always_inline bool is_martian(const struct addr *a, bool v6)
{
	if (v6) {
		__u8 first = bpf_ntohl(a->word[0]) >> 24;
		bool low = !a->word[0] && !a->word[1] && !a->word[2];

		return first == 0xff || (low && bpf_ntohl(a->word[3]) <= 1);
	}
	__u8 first = bpf_ntohl(a->word[3]) >> 24;

	return first == 0 || first == 127 || first >= 224;
}

#endif
