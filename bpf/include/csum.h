/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum, complete (RFC 1071) and incremental (RFC 1624, equation 3).
 * A difference is collected in a plain 64-bit sum over all changed words and applied
 * once to each checksum that covers them.
 */
#ifndef FAIRLEAD_CSUM_H
#define FAIRLEAD_CSUM_H

#include "addr.h"
#include "common.h"

/* Folds a sum of 16- and 32-bit words to 16 bits. Four rounds are enough for any
 * 64-bit value.
 */
static __always_inline __u16 csum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline __u64 csum_diff2(__u64 diff, __be16 old, __be16 new)
{
	return diff + (__u16)~old + new;
}

static __always_inline __u64 csum_diff4(__u64 diff, __be32 old, __be32 new)
{
	return diff + (__u32)~old + new;
}

/* With a constant v6, IPv4 costs one word. */
static __always_inline __u64 csum_diff_addr(__u64 diff, const struct addr *old,
					    const struct addr *new, bool v6)
{
	if (v6) {
		diff = csum_diff4(diff, old->word[0], new->word[0]);
		diff = csum_diff4(diff, old->word[1], new->word[1]);
		diff = csum_diff4(diff, old->word[2], new->word[2]);
	}
	return csum_diff4(diff, old->word[3], new->word[3]);
}

/* Applies the difference: HC' = ~(~HC + diff). */
static __always_inline __sum16 csum_apply(__sum16 check, __u64 diff)
{
	return ~csum_fold(diff + (__u16)~check);
}

/* In UDP zero means "no checksum" (RFC 768), which must stay, and a zero sum is
 * written as 0xffff. IPv6 allows zero only for tunnels (RFC 6935). It is kept there
 * too, for the receiver to check.
 */
static __always_inline __sum16 csum_apply_udp(__sum16 check, __u64 diff)
{
	if (check == 0)
		return 0;
	check = csum_apply(check, diff);
	return check ? check : 0xffff;
}

/* Returns the checksum of an IPv4 header with a constant size (a multiple of four).
 * The caller has set its check field to zero.
 */
static __always_inline __sum16 csum_ipv4(const struct iphdr *ip, unsigned int bytes)
{
	const __be32 *word = (const __be32 *)ip;
	__u64 sum = 0;

#pragma unroll
	for (unsigned int i = 0; i < bytes / 4; i++)
		sum += word[i];
	return ~csum_fold(sum);
}

/* Decrements the TTL as a router does. The caller has verified that it is greater
 * than one.
 */
static __always_inline void ipv4_decrement_ttl(struct iphdr *ip)
{
	/* TTL is the high byte of its 16-bit word: the word decreases by 0x0100. */
	ip->check = csum_apply(ip->check, (__u64)(__u16)~bpf_htons(0x0100));
	ip->ttl--;
}

#endif
