/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Fairlead option: one address and port that a packet carries from the
 * balancer to the server half. What they mean depends on the method:
 *
 *   tunnel, in the outer header: where the flow may be known if it is not
 *     known here (the second chance);
 *   direct-nat, on a SYN or a UDP packet: the VIP and port to restore;
 *   direct-nat, on any other TCP packet: the second chance.
 *
 * IPv4: the only option, right behind the 20 bytes (ihl is 7); type 0x9e is
 * one of RFC 4727's for experiments, copied to fragments. IPv6: a Destination
 * Options header right behind the 40 bytes; type 0x1e likewise, to be skipped
 * by who does not know it (RFC 8200, 4.2).
 */
#ifndef FAIRLEAD_OPTION_H
#define FAIRLEAD_OPTION_H

#include "addr.h"
#include "common.h"
#include "parse.h"

#define OPTION4_TYPE 0x9e
#define OPTION6_TYPE 0x1e
#define OPTION6_PADN 1 /* RFC 8200, 4.2 */
/* What follows the type and length of option6: address, port and two zeros. */
#define OPTION6_LEN 20

struct option4 {
	__u8 type;
	__u8 len;
	__be16 addr[2]; /* halves, because it lies at no multiple of four */
	__be16 port;
};

struct option6 {
	__u8 nexthdr; /* what followed the IPv6 header before */
	__u8 hdrlen;  /* in 8-byte units, not counting the first: 2 */
	__u8 type;
	__u8 len;
	__be32 addr[4];
	__be16 port;
	__be16 zero;
};

_Static_assert(sizeof(struct option4) == 8, "ihl grows by two words");
_Static_assert(sizeof(struct option6) == 24, "hdrlen says 2");

#define OPTION_SIZE(v6) ((v6) ? sizeof(struct option6) : sizeof(struct option4))

/* Where a flow is to go or came from. */
struct endpoint {
	struct addr addr;
	__be16 port;
	__u16 zero;
};

static __always_inline void option4_build(struct option4 *o, __be32 v4, __be16 port)
{
	union {
		__be32 whole;
		__be16 half[2];
	} a = {.whole = v4};

	o->type = OPTION4_TYPE;
	o->len = sizeof(*o);
	o->addr[0] = a.half[0];
	o->addr[1] = a.half[1];
	o->port = port;
}

static __always_inline void option6_build(struct option6 *o, const struct addr *a, __be16 port,
					  __u8 nexthdr)
{
	o->nexthdr = nexthdr;
	o->hdrlen = sizeof(*o) / 8 - 1;
	o->type = OPTION6_TYPE;
	o->len = OPTION6_LEN;
	o->addr[0] = a->word[0];
	o->addr[1] = a->word[1];
	o->addr[2] = a->word[2];
	o->addr[3] = a->word[3];
	o->port = port;
	o->zero = 0;
}

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

/* How many endpoints so many bytes are; 0 where they are no list. */
static __always_inline __u32 endpoints_in(__u32 bytes, bool v6)
{
	__u32 n = bytes / ENDPOINT_SIZE(v6);

	return n <= ENDPOINTS_MAX && n * ENDPOINT_SIZE(v6) == bytes ? n : 0;
}

/* How many endpoints the list behind an IPv4 header carries; 0: no list of
 * ours. The cursor stands behind the fixed header and stays there.
 */
static __always_inline __u32 option4_count(const struct cursor *c, const struct iphdr *ip)
{
	const __u8 *o = c->pos;
	__u32 n;

	if (ip->ihl < 7 || (void *)(o + OPTION4_HEAD) > c->end || o[0] != OPTION4_TYPE ||
	    o[1] < OPTION4_HEAD)
		return 0;
	n = endpoints_in(o[1] - OPTION4_HEAD, false);
	return option_bytes(n, false) <= (ip->ihl - 5) * 4 ? n : 0;
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
	if (n == 0 || option_bytes(n, true) != (o[1] + 1) * 8)
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
	__u16 zero;
};

static __always_inline __u32 gue_list_bytes(__u32 n, bool v6)
{
	if (n == 0)
		return 0;
	return (sizeof(struct gue_list) + n * ENDPOINT_SIZE(v6) + 3) & ~3U;
}

/* Takes the option behind an IPv4 header that parse_ipv4 gave. False, with the
 * cursor unmoved: there is none, or none of ours.
 */
static __always_inline bool option4_parse(struct cursor *c, const struct iphdr *ip,
					  struct endpoint *e)
{
	struct option4 *o = c->pos;
	union {
		__be32 whole;
		__be16 half[2];
	} a;

	if (ip->ihl != 7 || (void *)(o + 1) > c->end)
		return false;
	if (o->type != OPTION4_TYPE || o->len != sizeof(*o))
		return false;
	a.half[0] = o->addr[0];
	a.half[1] = o->addr[1];
	addr_from_v4(&e->addr, a.whole);
	e->port = o->port;
	e->zero = 0;
	c->pos = o + 1;
	return true;
}

/* The same behind an IPv6 header that parse_ipv6 gave; nexthdr gets what the
 * option header says comes next.
 */
static __always_inline bool option6_parse(struct cursor *c, const struct ipv6hdr *ip,
					  struct endpoint *e, __u8 *nexthdr)
{
	struct option6 *o = c->pos;

	if (ip->nexthdr != IPPROTO_DSTOPTS || (void *)(o + 1) > c->end)
		return false;
	if (o->hdrlen != sizeof(*o) / 8 - 1 || o->type != OPTION6_TYPE || o->len != OPTION6_LEN)
		return false;
	e->addr.word[0] = o->addr[0];
	e->addr.word[1] = o->addr[1];
	e->addr.word[2] = o->addr[2];
	e->addr.word[3] = o->addr[3];
	e->port = o->port;
	e->zero = 0;
	*nexthdr = o->nexthdr;
	c->pos = o + 1;
	return true;
}

#endif
