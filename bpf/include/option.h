/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Fairlead option: a list of addresses and ports that a packet carries from
 * the balancer to the server halves. What they mean depends on the method:
 *
 *   tunnel, in the outer header (with GUE in its private data): the servers
 *     where the flow may be known if it is not known here, newest first;
 *   dsr-nat and dr, in the packet's own header: the VIP and port to
 *     restore, and behind it the same servers.
 *
 * A server half that does not know the flow sends the packet to the first
 * server with the rest of the list; so a list ends.
 *
 * IPv4: the first option, right behind the 20 bytes; type 0x9e is one of RFC
 * 4727's for experiments, copied to fragments. IPv6: a Destination Options
 * header right behind the 40 bytes; type 0x1e likewise, to be skipped by who
 * does not know it (RFC 8200, 4.2).
 */
#ifndef FAIRLEAD_OPTION_H
#define FAIRLEAD_OPTION_H

#include "addr.h"
#include "common.h"
#include "parse.h"

#define OPTION4_TYPE 0x9e
#define OPTION6_TYPE 0x1e
#define OPTION6_PADN 1 /* RFC 8200, 4.2 */

/* Where a flow is to go or came from. */
struct endpoint {
	struct addr addr;
	__be16 port;
	__u16 zero;
};

/* The longest list: the VIP to restore and five servers that may know the flow. */
#define ENDPOINTS_MAX 6
#define ENDPOINT4_SIZE 6
#define ENDPOINT6_SIZE 18
#define ENDPOINT_SIZE(v6) ((v6) ? ENDPOINT6_SIZE : ENDPOINT4_SIZE)
/* What stands before the first endpoint: type and length; in IPv6 those of the
 * extension header too.
 */
#define OPTION4_HEAD 2
#define OPTION6_HEAD 4
#define OPTION_HEAD(v6) ((v6) ? OPTION6_HEAD : OPTION4_HEAD)

/* The bytes of an option with so many endpoints, its padding among them. */
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

/* The same of a list with a tag; n may be 0. */
static __always_inline __u32 option_bytes_tagged(__u32 n, bool v6)
{
	return v6 ? (OPTION6_HEAD + n * ENDPOINT6_SIZE + AUTH_TAG_SIZE + 7) & ~7U
		  : (OPTION4_HEAD + n * ENDPOINT4_SIZE + AUTH_TAG_SIZE + 3) & ~3U;
}

/* The same of a list of which it is to be seen whether it has a tag. */
static __always_inline __u32 option_bytes_of(__u32 n, bool tagged, bool v6)
{
	return tagged ? option_bytes_tagged(n, v6) : option_bytes(n, v6);
}

/* How many endpoints so many bytes are, with LIST_TAGGED where a tag ends them; 0 where
 * they are no list.
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

/* The bytes of the option with what endpoints_in has found. */
static __always_inline __u32 option_bytes_found(__u32 n, bool v6)
{
	return option_bytes_of(n & LIST_ENDPOINTS, n & LIST_TAGGED, v6);
}

/* How many endpoints the list behind an IPv4 header carries, as endpoints_in has it; 0:
 * no list of ours. The cursor stands behind the fixed header and stays there.
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

/* The same behind an IPv6 header: the list has the extension header to itself.
 * next gets what that header says comes next.
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

/* GUE (draft-ietf-intarea-gue-09): UDP, four bytes, and as private data the
 * list again, behind four bytes of its own.
 */
struct gue {
	__u8 hlen : 5, control : 1, version : 2; /* hlen: words that follow the four bytes */
	__u8 proto;
	__be16 flags;
};

struct gue_list {
	__u8 magic; /* OPTION4_TYPE */
	__u8 n;
	__u8 tag; /* words of an authentication tag behind the endpoints: 2, or 0 */
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
