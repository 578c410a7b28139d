/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* direct-nat: the destination becomes the server. A packet that may open a
 * flow carries the VIP and port in an option, for the server's node to put
 * back into the answers; one of an older flow may carry the second chance.
 */
#ifndef FAIRLEAD_BALANCER_DIRECT_NAT_H
#define FAIRLEAD_BALANCER_DIRECT_NAT_H

#include "choose.h"
#include "leave.h"
#include "option.h"
#include "rewrite.h"

/* Makes so many bytes of room behind the IP header, by moving what is before
 * it. In short steps from the front, because source and target overlap and the
 * stack has no room for a copy. Gives the IP header's new place.
 */
static __always_inline void *direct_nat_grow(struct xdp_md *ctx, unsigned int bytes,
					     unsigned int ip_bytes)
{
	unsigned int len = sizeof(struct ethhdr) + ip_bytes;
	void *data;

	if (bpf_xdp_adjust_head(ctx, -(int)bytes))
		return NULL;
	data = (void *)(long)ctx->data;
	if (data + len + bytes > (void *)(long)ctx->data_end)
		return NULL;
#pragma unroll
	for (unsigned int at = 0; at < len; at += 2)
		*(volatile __u16 *)(data + at) = *(__u16 *)(data + at + bytes);
	return data + sizeof(struct ethhdr);
}

static __always_inline bool direct_nat_option_v4(struct xdp_md *ctx, const struct packet *p,
						 const struct tuple *to, const struct endpoint *e)
{
	struct iphdr *ip = direct_nat_grow(ctx, sizeof(struct option4), sizeof(*ip));
	struct option4 *option = (void *)(ip + 1);
	const __be32 *word = (const __be32 *)ip;
	__u64 diff;
	void *end = (void *)(long)ctx->data_end;

	if (!ip || (void *)(option + 1) > end)
		return false;
	/* By difference: a header that came broken must not leave mended. */
	option4_build(option, addr_to_v4(&e->addr), e->port);
	diff = csum_diff4(csum_diff4(0, 0, word[5]), 0, word[6]);
	diff = csum_diff4(csum_diff4(diff, word[0], 0), word[4], addr_to_v4(&to->dst));
	ip->ihl = (sizeof(*ip) + sizeof(*option)) / 4;
	ip->tot_len = bpf_htons(p->len + sizeof(*option));
	ip->daddr = addr_to_v4(&to->dst);
	ip->check = csum_apply(ip->check, csum_diff4(diff, 0, word[0]));
	return rewrite_l4(option + 1, end, &p->t, to, rewrite_diff(&p->t, to, false));
}

static __always_inline bool direct_nat_option_v6(struct xdp_md *ctx, const struct packet *p,
						 const struct tuple *to, const struct endpoint *e)
{
	struct ipv6hdr *ip = direct_nat_grow(ctx, sizeof(struct option6), sizeof(*ip));
	struct option6 *option = (void *)(ip + 1);
	void *end = (void *)(long)ctx->data_end;

	if (!ip || (void *)(option + 1) > end)
		return false;
	ip->payload_len = bpf_htons(p->len - sizeof(*ip) + sizeof(*option));
	ip->nexthdr = IPPROTO_DSTOPTS;
	addr_to_v6(&ip->daddr, &to->dst);
	option6_build(option, &e->addr, e->port, p->t.proto);
	return rewrite_l4(option + 1, end, &p->t, to, rewrite_diff(&p->t, to, true));
}

/* What this packet must tell the server's node, if anything. */
static __always_inline bool direct_nat_tells(struct endpoint *e, const struct packet *p,
					     const struct choice *ch)
{
	e->zero = 0;
	if (opens(p)) {
		e->addr = p->t.dst;
		e->port = p->t.dport;
		return true;
	}
	if (!ch->second)
		return false;
	e->addr = ch->second->addr;
	e->port = ch->second->port;
	return true;
}

static __always_inline int direct_nat_telling(struct xdp_md *ctx, const struct packet *p,
					      const struct endpoint *e, struct departure *d,
					      enum way way, bool v6)
{
	bool ok = v6 ? direct_nat_option_v6(ctx, p, &d->to, e)
		     : direct_nat_option_v4(ctx, p, &d->to, e);

	return ok ? leave(ctx, d, way, v6) : drop(ctx, DROP_NO_ROOM);
}

static __always_inline int direct_nat(struct xdp_md *ctx, const struct packet *p,
				      const struct choice *ch, bool v6)
{
	struct departure d;
	struct endpoint e;
	enum way way;

	d.to = p->t;
	d.to.dst = ch->server->addr;
	d.to.dport = ch->server->port;
	if (direct_nat_tells(&e, p, ch)) {
		way = find_way(ctx, &d, p->len + OPTION_SIZE(v6), v6);
		if (!way_leads_nowhere(way))
			return direct_nat_telling(ctx, p, &e, &d, way, v6);
		/* A full datagram goes without: its flow is known from others. */
		if (way != WAY_TOO_BIG || p->t.proto != IPPROTO_UDP)
			return drop_way(ctx, way);
	}
	way = find_way(ctx, &d, p->len, v6);
	if (way_leads_nowhere(way))
		return drop_way(ctx, way);
	if (!rewrite(ctx, &p->t, &d.to, v6))
		return drop(ctx, DROP_NO_ROOM);
	return leave(ctx, &d, way, v6);
}

static __noinline int direct_nat_v4(struct xdp_md *ctx, const struct packet *p,
				    const struct choice *ch)
{
	return direct_nat(ctx, p, ch, false);
}

static __noinline int direct_nat_v6(struct xdp_md *ctx, const struct packet *p,
				    const struct choice *ch)
{
	return direct_nat(ctx, p, ch, true);
}

#endif
