/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IPv4 options and IPv6 extension headers: finds the transport header after them,
 * fragment information, and whether the sender selects the routers, which is not
 * allowed through a load balancer (RFC 7126, 4.3; RFC 5095).
 */
#ifndef FAIRLEAD_BALANCER_OPTIONS_H
#define FAIRLEAD_BALANCER_OPTIONS_H

#include "scratch.h"

/* Relevant IPv4 option types (RFC 791, 3.1). */
enum option4_types {
	OPTION4_END = 0,
	OPTION4_NOP = 1,
	OPTION4_LOOSE_ROUTE = 131,
	OPTION4_STRICT_ROUTE = 137,
};

/* No legitimate packet has more than these. */
#define EXTENSIONS_MAX 8

struct ipv6_extension {
	__u8 nexthdr;
	__u8 hdrlen;
	__u8 type;
	__u8 left; /* routing: remaining segments */
	__be32 id; /* fragment */
};

/* State while walking options. The position is in r, so that the verifier sees one
 * case per iteration and not one per position.
 */
struct options_walk {
	struct rare *r;
	__u32 bytes;
	bool broken;
};

/* Processes one option. A nonzero result ends the loop. */
static long option_take_v4(__u32 i __attribute__((unused)), void *arg)
{
	struct options_walk *w = arg;
	struct rare *r = w->r;
	__u32 at = r->walked, bytes = w->bytes;
	__u8 type, len;

	if (at >= bytes)
		return 1;
	if (at >= OPTIONS4_MAX) {
		w->broken = true;
		return 1;
	}
	type = r->options[at];
	if (type == OPTION4_END)
		return 1;
	if (type == OPTION4_NOP) {
		r->walked = at + 1;
		return 0;
	}
	w->broken = at + 1 >= OPTIONS4_MAX || at + 1 >= bytes;
	if (w->broken)
		return 1;
	len = r->options[at + 1];
	w->broken = len < 2 || at + len > bytes;
	if (w->broken)
		return 1;
	if (type == OPTION4_LOOSE_ROUTE || type == OPTION4_STRICT_ROUTE)
		r->own.source_route = true;
	r->walked = at + len;
	return 0;
}

/* Walks the options in r->options. Returns false if they are malformed. */
static __always_inline bool options_walk_v4(struct rare *r, __u32 bytes)
{
	struct options_walk w = {.r = r, .bytes = bytes};

	r->own.source_route = false;
	r->walked = 0;
	bpf_loop(OPTIONS4_MAX, option_take_v4, &w, 0);
	return !w.broken;
}

/* Loads and walks the frame's own IPv4 options. */
static __always_inline void options_read_v4(struct xdp_md *ctx, struct rare *r)
{
	__u32 bytes = (r->own.ip.v4.ihl - 5) * 4;

	if (bytes == 0 || r->own.broken)
		return;
	bytes = within(bytes, 64);
	if (bytes > OPTIONS4_MAX ||
	    bpf_xdp_load_bytes(ctx, r->own.l3 + sizeof(struct iphdr), r->options, bytes) ||
	    !options_walk_v4(r, bytes))
		r->own.broken = true;
}

/* Reads the header at s->l3 of a packet that may extend up to `limit`. Returns false
 * if it is no IPv4 header. A quoted packet may be truncated.
 */
static __always_inline bool spot_read_v4(struct xdp_md *ctx, struct spot *s, __u32 limit,
					 bool quoted)
{
	struct iphdr *ip = &s->ip.v4;
	__u32 len, header;

	if (bpf_xdp_load_bytes(ctx, s->l3, ip, sizeof(*ip)))
		return false;
	header = ip->ihl * 4;
	if (ip->version != 4 || header < sizeof(*ip))
		return false;
	len = bpf_ntohs(ip->tot_len);
	s->l4 = s->l3 + header;
	s->end = s->l3 + len;
	s->broken = len < header;
	if (s->end > limit) {
		s->end = limit;
		s->broken |= !quoted;
	}
	s->proto = ip->protocol;
	s->offset = (bpf_ntohs(ip->frag_off) & 0x1fff) * 8;
	s->more = (ip->frag_off & bpf_htons(0x2000)) != 0;
	s->id = ip->id;
	s->fragment = 0;
	s->source_route = false;
	return true;
}

static __always_inline bool is_extension(__u8 proto)
{
	switch (proto) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_DSTOPTS:
	case IPPROTO_AH:
		return true;
	}
	return false;
}

/* Processes one extension header. */
static __always_inline void extension_take(struct spot *s, const struct ipv6_extension *e)
{
	__u32 bytes = (e->hdrlen + 1) * 8;

	switch (s->proto) {
	case IPPROTO_FRAGMENT:
		bytes = sizeof(*e);
		s->fragment = s->l4;
		s->id = e->id;
		s->offset = (e->type << 8 | e->left) & 0xfff8;
		s->more = e->left & 1;
		break;
	case IPPROTO_AH: /* in words, minus two (RFC 4302, 2.2) */
		bytes = (e->hdrlen + 2) * 4;
		break;
	case IPPROTO_ROUTING:
		s->source_route |= e->left != 0;
		break;
	}
	s->proto = e->nexthdr;
	s->l4 += bytes;
}

/* Walks to the transport header, or to the body of a later fragment. */
__noinline int extensions_walk(struct xdp_md *ctx, struct spot *s)
{
	if (!s)
		return -1;
	struct ipv6_extension e;

	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		if (!is_extension(s->proto) || s->offset)
			return 0;
		if (s->l4 + sizeof(e) > s->end || bpf_xdp_load_bytes(ctx, s->l4, &e, sizeof(e)))
			return -1;
		if (s->proto == IPPROTO_FRAGMENT && s->fragment)
			return -1;
		extension_take(s, &e);
	}
	return is_extension(s->proto) && !s->offset ? -1 : 0;
}

static __always_inline bool spot_read_v6(struct xdp_md *ctx, struct spot *s, __u32 limit,
					 bool quoted)
{
	struct ipv6hdr *ip = &s->ip.v6;

	if (bpf_xdp_load_bytes(ctx, s->l3, ip, sizeof(*ip)) || ip->version != 6)
		return false;
	s->l4 = s->l3 + sizeof(*ip);
	s->end = s->l4 + bpf_ntohs(ip->payload_len);
	s->broken = false;
	if (s->end > limit) {
		s->end = limit;
		s->broken = !quoted;
	}
	s->proto = ip->nexthdr;
	s->offset = 0;
	s->more = false;
	s->id = 0;
	s->fragment = 0;
	s->source_route = false;
	if (extensions_walk(ctx, s))
		s->broken = true;
	return true;
}

static __always_inline bool spot_read(struct xdp_md *ctx, struct spot *s, __u32 limit, bool quoted,
				      bool v6)
{
	return v6 ? spot_read_v6(ctx, s, limit, quoted) : spot_read_v4(ctx, s, limit, quoted);
}

#endif
