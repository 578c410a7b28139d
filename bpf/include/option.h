/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Fairlead option: a list of addresses and ports that a packet carries from the
 * load balancer to the DSR agents. Its meaning depends on the forwarding mode:
 *
 *   tunnel, in the outer header (with GUE in its private data): the backends that may
 *     know the flow if it is not known here, newest first;
 *   dsr-nat and dr, in the packet's own header: the VIP and port to restore, followed
 *     by the same backends.
 *
 * A DSR agent that does not know the flow sends the packet to the first backend with
 * the rest of the list, so the list shrinks until it is empty.
 *
 * IPv4: the first option, directly after the 20 bytes; type 0x9e is an experimental
 * one of RFC 4727, copied to fragments. IPv6: a Destination Options header directly
 * after the 40 bytes; type 0x1e is also experimental, and skipped by nodes that do
 * not know it (RFC 8200, 4.2).
 */
#ifndef FAIRLEAD_OPTION_H
#define FAIRLEAD_OPTION_H

#include "addr.h"
#include "common.h"
#include "parse.h"

#define OPTION4_TYPE 0x9e
#define OPTION6_TYPE 0x1e
#define OPTION6_PADN 1 /* RFC 8200, 4.2 */

/* A flow's destination or source. */
struct endpoint {
	struct addr addr;
	__be16 port;
	__u16 zero;
};

/* The longest list: the VIP to restore and five backends that may know the flow. */
#define ENDPOINTS_MAX 6
#define ENDPOINT4_SIZE 6
#define ENDPOINT6_SIZE 18
#define ENDPOINT_SIZE(v6) ((v6) ? ENDPOINT6_SIZE : ENDPOINT4_SIZE)
/* Bytes before the first endpoint: type and length; in IPv6 also those of the
 * extension header.
 */
#define OPTION4_HEAD 2
#define OPTION6_HEAD 4
#define OPTION_HEAD(v6) ((v6) ? OPTION6_HEAD : OPTION4_HEAD)

/* Returns the size of an option with n endpoints, including padding. */
static __always_inline __u32 option_bytes(__u32 n, bool v6)
{
	if (n == 0)
		return 0;
	return v6 ? (OPTION6_HEAD + n * ENDPOINT6_SIZE + 7) & ~7U
		  : (OPTION4_HEAD + n * ENDPOINT4_SIZE + 3) & ~3U;
}

/* A list may end with an authentication tag (auth.h). */
#define AUTH_TAG_SIZE 8
#define LIST_TAGGED 0x80 /* in a number of endpoints */
#define LIST_ENDPOINTS 0x7f

/* The same for a list with a tag. n may be 0. */
static __always_inline __u32 option_bytes_tagged(__u32 n, bool v6)
{
	return v6 ? (OPTION6_HEAD + n * ENDPOINT6_SIZE + AUTH_TAG_SIZE + 7) & ~7U
		  : (OPTION4_HEAD + n * ENDPOINT4_SIZE + AUTH_TAG_SIZE + 3) & ~3U;
}

/* The same for a list with or without a tag. */
static __always_inline __u32 option_bytes_of(__u32 n, bool tagged, bool v6)
{
	return tagged ? option_bytes_tagged(n, v6) : option_bytes(n, v6);
}

/* Returns the number of endpoints in these bytes, with LIST_TAGGED if they end with a
 * tag, or 0 if they are no list.
 */
static __always_inline __u32 endpoints_in(__u32 bytes, bool v6)
{
	__u32 n = bytes / ENDPOINT_SIZE(v6);

	if (n <= ENDPOINTS_MAX && n * ENDPOINT_SIZE(v6) == bytes)
		return n;
	bytes -= AUTH_TAG_SIZE;
	n = bytes / ENDPOINT_SIZE(v6);
	return n <= ENDPOINTS_MAX && n * ENDPOINT_SIZE(v6) == bytes ? n | LIST_TAGGED : 0;
}

/* Returns the size of an option with a result of endpoints_in. */
static __always_inline __u32 option_bytes_found(__u32 n, bool v6)
{
	return option_bytes_of(n & LIST_ENDPOINTS, n & LIST_TAGGED, v6);
}

/* Returns the number of endpoints in the list after an IPv4 header, like
 * endpoints_in, or 0 if it is not ours. The cursor stays after the fixed header.
 */
static __always_inline __u32 option4_count(const struct cursor *c, const struct iphdr *ip)
{
	const __u8 *o = c->pos;
	__u32 n;

	if (ip->ihl < 7 || (void *)(o + OPTION4_HEAD) > c->end || o[0] != OPTION4_TYPE ||
	    o[1] < OPTION4_HEAD)
		return 0;
	n = endpoints_in(o[1] - OPTION4_HEAD, false);
	return option_bytes_found(n, false) <= (ip->ihl - 5) * 4 ? n : 0;
}

/* The same after an IPv6 header. The extension header contains only the list. next
 * receives its next header field.
 */
static __always_inline __u32 option6_count(const struct cursor *c, const struct ipv6hdr *ip,
					   __u8 *next)
{
	const __u8 *o = c->pos;
	__u32 n;

	if (ip->nexthdr != IPPROTO_DSTOPTS || (void *)(o + OPTION6_HEAD) > c->end ||
	    o[2] != OPTION6_TYPE)
		return 0;
	n = endpoints_in(o[3], true);
	if (n == 0 || option_bytes_found(n, true) != (o[1] + 1) * 8)
		return 0;
	*next = o[0];
	return n;
}

/* GUE (draft-ietf-intarea-gue-09): UDP, four bytes, and the list as private data,
 * after another four bytes.
 */
struct gue {
	__u8 hlen : 5, control : 1, version : 2; /* hlen: words after the four bytes */
	__u8 proto;
	__be16 flags;
};

struct gue_list {
	__u8 magic; /* OPTION4_TYPE */
	__u8 n;
	__u8 tag; /* words of an authentication tag after the endpoints: 2, or 0 */
	__u8 zero;
};

#define GUE_TAG_WORDS (AUTH_TAG_SIZE / 4)

static __always_inline __u32 gue_list_bytes(__u32 n, bool v6)
{
	if (n == 0)
		return 0;
	return (sizeof(struct gue_list) + n * ENDPOINT_SIZE(v6) + 3) & ~3U;
}

static __always_inline __u32 gue_list_bytes_of(__u32 n, bool tagged, bool v6)
{
	if (!tagged)
		return gue_list_bytes(n, v6);
	return (sizeof(struct gue_list) + n * ENDPOINT_SIZE(v6) + AUTH_TAG_SIZE + 3) & ~3U;
}

#endif
