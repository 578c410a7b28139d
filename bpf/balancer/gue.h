/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* GUE (draft-ietf-intarea-gue-09), variant 0: UDP to set.gue_port, from a port
 * derived from the flow for the routers' ECMP, without checksum (RFC 6935, RFC 8086).
 * The chain is private data after the four bytes of GUE. Receivers that do not know
 * it skip it.
 */
#ifndef FAIRLEAD_BALANCER_GUE_H
#define FAIRLEAD_BALANCER_GUE_H

#include "chain.h"

#define GUE_FIRST_PORT 49152 /* the dynamic ports: RFC 6335 */

/* Size of UDP, GUE and a chain of n endpoints. */
static __always_inline __u32 gue_bytes(__u32 n, bool outer6)
{
	return sizeof(struct udphdr) + sizeof(struct gue) + gue_list_bytes(n, outer6);
}

static __always_inline bool gue_put_list(void *to, const void *end, const struct chain *c,
					 bool outer6)
{
	__u32 n = chain_length(c);
	const __u8 *bytes = c->bytes;

	if (to + sizeof(struct gue_list) > end)
		return false;
	*(__be32 *)to = bpf_htonl(OPTION4_TYPE << 24 | n << 16);
	to += sizeof(struct gue_list);
	if (!outer6)
		return endpoints_copy_v4(to, end, bytes, n);
	to = endpoints_copy_v6(to, end, bytes, n);
	return to && pad(to, end,
			 gue_list_bytes(n, true) - sizeof(struct gue_list) - n * ENDPOINT6_SIZE, 0);
}

/* Writes the headers between the outer IP header and the packet. len counts
 * everything from here on. The caller has verified that UDP and GUE fit the frame.
 */
static __always_inline bool gue_put(void *to, const void *end, const struct chain *chain, __u16 len,
				    __u32 hash, bool inner6, bool outer6)
{
	__u8 words = gue_list_bytes(chain_length(chain), outer6) / 4;
	__u8 proto = inner6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__be32 *word = to;

	word[0] = bpf_htonl((GUE_FIRST_PORT + (hash & 0x3fff)) << 16 | set.gue_port);
	word[1] = bpf_htonl((__u32)len << 16);
	word[2] = bpf_htonl((__u32)words << 24 | proto << 16);
	return !chain || gue_put_list(word + 3, end, chain, outer6);
}

#endif
