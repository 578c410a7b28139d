/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tunnel: IP in IP (RFC 2003, RFC 2473, RFC 4213) from our own address to the
 * server's; the packet inside is left as it is. The second chance is an option
 * of the outer header.
 */
#ifndef FAIRLEAD_BALANCER_TUNNEL_H
#define FAIRLEAD_BALANCER_TUNNEL_H

#include "choose.h"
#include "leave.h"
#include "option.h"

#define TUNNEL_TTL 64

/* Makes room for the outer header and moves the Ethernet addresses before it,
 * so that the kernel still knows the frame as its own. Gives where the outer
 * IP header is to go.
 */
static __always_inline void *tunnel_grow(struct xdp_md *ctx, int bytes, __be16 proto)
{
	struct ethhdr *eth;
	void *data, *end;

	if (bpf_xdp_adjust_head(ctx, -bytes))
		return NULL;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + bytes + sizeof(*eth) > end)
		return NULL;
	eth = data;
	__builtin_memcpy(eth, data + bytes, 2 * ETH_ALEN);
	eth->h_proto = proto;
	return eth + 1;
}

static __always_inline bool tunnel_put_v4(struct xdp_md *ctx, const struct packet *p,
					  const struct tuple *outer, const struct server *second,
					  bool with_option)
{
	const int bytes = sizeof(struct iphdr) + (with_option ? sizeof(struct option4) : 0);
	struct iphdr *ip = tunnel_grow(ctx, bytes, bpf_htons(ETH_P_IP));

	if (!ip)
		return false;
	ip->version = 4;
	ip->ihl = bytes / 4;
	ip->tos = p->tos;
	ip->tot_len = bpf_htons(p->len + bytes);
	ip->id = 0; /* never fragmented: RFC 6864, 4.1 */
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = TUNNEL_TTL;
	ip->protocol = outer->proto;
	ip->check = 0;
	ip->saddr = addr_to_v4(&outer->src);
	ip->daddr = addr_to_v4(&outer->dst);
	if (with_option)
		option4_build((struct option4 *)(ip + 1), addr_to_v4(&second->addr), second->port);
	ip->check = csum_ipv4(ip, bytes);
	return true;
}

/* The flow label carries the flow's hash, for the routers' ECMP (RFC 6438). */
static __always_inline bool tunnel_put_v6(struct xdp_md *ctx, const struct packet *p,
					  const struct tuple *outer, const struct server *second,
					  bool with_option, __u32 hash)
{
	const int option = with_option ? sizeof(struct option6) : 0;
	struct ipv6hdr *ip;

	ip = tunnel_grow(ctx, sizeof(*ip) + option, bpf_htons(ETH_P_IPV6));
	if (!ip)
		return false;
	*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)p->tos << 20 | (hash & 0xfffff));
	ip->payload_len = bpf_htons(p->len + option);
	ip->nexthdr = with_option ? IPPROTO_DSTOPTS : outer->proto;
	ip->hop_limit = TUNNEL_TTL;
	addr_to_v6(&ip->saddr, &outer->src);
	addr_to_v6(&ip->daddr, &outer->dst);
	if (with_option)
		option6_build((struct option6 *)(ip + 1), &second->addr, second->port,
			      outer->proto);
	return true;
}

static __always_inline int tunnel_by(struct xdp_md *ctx, const struct packet *p,
				     const struct choice *ch, struct departure *d, bool outer6)
{
	__u32 len = p->len + (outer6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	enum way way;
	bool ok;

	if (addr_is_zero(&d->to.src))
		return drop(DROP_NO_SOURCE);
	if (ch->second)
		len += OPTION_SIZE(outer6);
	way = find_way(ctx, d, len, outer6);
	if (way_leads_nowhere(way))
		return drop_way(way);
	if (outer6)
		ok = ch->second ? tunnel_put_v6(ctx, p, &d->to, ch->second, true, ch->hash)
				: tunnel_put_v6(ctx, p, &d->to, NULL, false, ch->hash);
	else
		ok = ch->second ? tunnel_put_v4(ctx, p, &d->to, ch->second, true)
				: tunnel_put_v4(ctx, p, &d->to, NULL, false);
	return ok ? leave(ctx, d, way, outer6) : drop(DROP_NO_ROOM);
}

static __always_inline int tunnel(struct xdp_md *ctx, const struct packet *p,
				  const struct choice *ch, bool v6)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	struct departure d;

	if (!set)
		return drop(DROP_NO_SOURCE);
	d.to.dst = ch->server->addr;
	d.to.sport = 0;
	d.to.dport = 0;
	d.to.proto = v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	if (addr_is_v4(&ch->server->addr)) {
		d.to.src = set->own4;
		return tunnel_by(ctx, p, ch, &d, false);
	}
	d.to.src = set->own6;
	return tunnel_by(ctx, p, ch, &d, true);
}

static __noinline int tunnel_from_v4(struct xdp_md *ctx, const struct packet *p,
				     const struct choice *ch)
{
	return tunnel(ctx, p, ch, false);
}

static __noinline int tunnel_from_v6(struct xdp_md *ctx, const struct packet *p,
				     const struct choice *ch)
{
	return tunnel(ctx, p, ch, true);
}

#endif
