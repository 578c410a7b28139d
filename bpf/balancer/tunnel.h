/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tunnel: encapsulates the unmodified packet, from our own address to the backend's.
 * IP-in-IP (RFC 2003, RFC 2473, RFC 4213) carries the chain as an option of the outer
 * header, GUE (gue.h) as its private data.
 */
#ifndef FAIRLEAD_BALANCER_TUNNEL_H
#define FAIRLEAD_BALANCER_TUNNEL_H

#include "auth_front.h"
#include "chain.h"
#include "gue.h"
#include "egress.h"

/* The outer headers. */
struct outer {
	const struct chain *chain; /* or NULL */
	__u32 bytes;		   /* everything put before the packet */
	__u32 hash;
	__u16 len; /* of the inner packet */
	__u8 tos;
	__u8 ttl;
	bool gue;
	bool inner6;
};

static __always_inline __u32 tunnel_bytes(const struct chain *chain, bool gue, bool outer6)
{
	__u32 n = chain_length(chain);
	__u32 header = outer6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	return header + (gue ? gue_bytes(n, outer6) : option_bytes(n, outer6));
}

/* Writes the Ethernet header at the front: to the next hop, or as received, so that
 * the kernel still accepts the frame. `bytes` have been inserted before it.
 */
static __always_inline bool tunnel_put_eth(void *data, const void *end, const struct next_hop *hop,
					   __u32 bytes, enum way way, bool outer6)
{
	struct ethhdr *eth = data;

	if (way == WAY_KERNEL) {
		bytes &= 0xff;
		if (data + bytes + sizeof(*eth) > end)
			return false;
		macs_copy(eth, data + bytes);
	} else {
		macs_copy(eth, hop->macs);
	}
	eth->h_proto = outer6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	return true;
}

/* Writes whole words and sums them while they are in registers. */
static __always_inline bool tunnel_put_v4(void *l3, const void *end, const struct outer *o,
					  __be32 dst)
{
	__u32 header = sizeof(struct iphdr);
	__u8 proto = o->gue ? IPPROTO_UDP : o->inner6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__be32 never_fragmented = bpf_htonl(0x4000); /* RFC 6864, 4.1 */
	__be32 *word = l3;
	__be32 first, third, src = addr_to_v4(&set.own4);
	__u64 sum = 0;

	if (o->chain && !o->gue) {
		header += option_bytes(chain_length(o->chain), false);
		if (!option_put_v4(word + 5, end, o->chain, &sum))
			return false;
	}
	first = bpf_htonl(4u << 28 | (header / 4) << 24 | o->tos << 16 | (o->len + o->bytes));
	third = bpf_htonl(o->ttl << 24 | proto << 16);
	sum += (__u64)first + never_fragmented + third + src + dst;
	third |= (__u32)(__u16)~csum_fold(sum) << 16;
	word[0] = first;
	word[1] = never_fragmented;
	word[2] = third;
	word[3] = src;
	word[4] = dst;
	return true;
}

/* The flow label carries the flow's hash, for the routers' ECMP (RFC 6438). */
static __always_inline bool tunnel_put_v6(void *l3, const void *end, const struct outer *o,
					  const struct addr *dst)
{
	__u8 proto = o->gue ? IPPROTO_UDP : o->inner6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	struct ipv6hdr *ip = l3;
	__u8 nexthdr = o->chain && !o->gue ? IPPROTO_DSTOPTS : proto;

	*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)o->tos << 20 | (o->hash & 0xfffff));
	*(__be32 *)&ip->payload_len =
		bpf_htonl((o->len + o->bytes - sizeof(*ip)) << 16 | nexthdr << 8 | o->ttl);
	addr_copy(&ip->saddr, &set.own6);
	addr_copy(&ip->daddr, dst);
	if (o->chain && !o->gue)
		return option_put_v6(ip + 1, end, o->chain, proto);
	return true;
}

/* Called with constants in o and way: the compiler makes one body per case. */
static __always_inline bool tunnel_put_one(struct xdp_md *ctx, const struct outer *o,
					   const struct choice *ch, enum way way, bool outer6)
{
	const __u32 header = outer6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	const __u32 least = header + (o->gue ? sizeof(struct udphdr) + sizeof(struct gue) : 0);
	void *data, *end, *l3;

	if (bpf_xdp_adjust_head(ctx, -(int)o->bytes))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	l3 = data + sizeof(struct ethhdr);
	if (l3 + least > end)
		return false;
	if (!tunnel_put_eth(data, end, ch->hop, o->bytes, way, outer6))
		return false;
	if (o->gue && !gue_put(l3 + header, end, o->chain, o->len + o->bytes - header, o->hash,
			       o->inner6, outer6))
		return false;
	return outer6 ? tunnel_put_v6(l3, end, o, &ch->server->addr)
		      : tunnel_put_v4(l3, end, o, addr_to_v4(&ch->server->addr));
}

static __always_inline bool tunnel_put(struct xdp_md *ctx, struct outer *o, const struct choice *ch,
				       enum way way, bool outer6)
{
	if (ch->chain) {
		o->chain = ch->chain;
		return tunnel_put_one(ctx, o, ch, way, outer6);
	}
	o->chain = NULL;
	o->bytes = tunnel_bytes(NULL, o->gue, outer6);
	return tunnel_put_one(ctx, o, ch, way, outer6);
}

/* Sends the packet to the known next hop. */
static __always_inline int tunnel_on(struct xdp_md *ctx, __u16 len, __u8 tos,
				     const struct choice *ch, enum way way, bool gue, bool v6,
				     bool outer6)
{
	struct outer o = {
		.bytes = tunnel_bytes(ch->chain, gue, outer6),
		.hash = ch->hash,
		.len = len,
		.tos = tos,
		.ttl = way == WAY_KERNEL ? TUNNEL_TTL : TUNNEL_TTL - 1,
		.inner6 = v6,
		.gue = gue,
	};
	bool ok;

	if (unlikely(!way_fits(way, ch, len + o.bytes)))
		return TO_SLOW_PATH_TOO_BIG;
	if (unlikely(outer6 ? addr_is_zero(&set.own6) : !addr_to_v4(&set.own4)))
		return drop(ctx, DROP_NO_SOURCE);
	if (gue) {
		o.gue = true;
		ok = tunnel_put(ctx, &o, ch, way, outer6);
	} else {
		o.gue = false;
		ok = tunnel_put(ctx, &o, ch, way, outer6);
	}
	return likely(ok) ? go(way, ch->hop->ifindex) : drop(ctx, DROP_NO_HEADROOM);
}

/* Any way, any family. The verifier checks it once, regardless of the maps that hold
 * the backend and its chain.
 */
__noinline int tunnel_any(struct xdp_md *ctx, const struct tunnelling *t,
			  const struct server *server, struct next_hop *hop,
			  const struct chain *chain)
{
	struct choice ch = {.server = server, .hop = hop, .chain = chain};

	if (!t || !server || !hop) /* for the verifier */
		return XDP_PASS;
	ch.hash = t->hash;
	if (addr_is_v4(&server->addr))
		return tunnel_on(ctx, t->len, t->tos, &ch, t->way, t->gue, t->inner6, false);
	return tunnel_on(ctx, t->len, t->tos, &ch, t->way, t->gue, t->inner6, true);
}

/* The same with an authentication tag, for the packet set by auth_packet. */
__noinline int auth_tunnel(struct xdp_md *ctx, const struct tunnelling *t,
			   const struct server *server, struct next_hop *hop,
			   const struct chain *chain)
{
	struct choice ch = {.server = server, .hop = hop, .chain = chain};
	void *data, *end;
	__u32 bytes;
	bool outer6;

	if (!t || !server || !hop) /* for the verifier */
		return XDP_PASS;
	outer6 = !addr_is_v4(&server->addr);
	bytes = auth_tunnel_bytes(chain, t->gue, outer6);
	if (unlikely(!way_fits(t->way, &ch, t->len + bytes)))
		return TO_SLOW_PATH_TOO_BIG;
	if (unlikely(addr_is_zero(outer6 ? &set.own6 : &set.own4)))
		return drop(ctx, DROP_NO_SOURCE);
	bytes = auth_front(t, server, chain);
	if (!bytes || bpf_xdp_adjust_head(ctx, -(int)bytes))
		return drop(ctx, DROP_NO_HEADROOM);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + sizeof(struct ethhdr) > end ||
	    !tunnel_put_eth(data, end, hop, bytes, t->way, outer6) ||
	    !auth_store(ctx, sizeof(struct ethhdr), bytes))
		return drop(ctx, DROP_NO_HEADROOM);
	return go(t->way, hop->ifindex);
}

static __always_inline int tunnel(struct xdp_md *ctx, const struct packet *p, bool gue,
				  const struct choice *ch, bool v6)
{
	struct tunnelling t = {
		.hash = ch->hash,
		.way = way_to(ctx, ch),
		.len = p->len,
		.tos = p->tos,
		.gue = gue,
		.inner6 = v6,
	};

	if (way_leads_nowhere(t.way))
		return drop_way(ctx, t.way);
	if (auth_policy) {
		auth_packet(&p->t.src, &p->t.dst, p);
		return auth_tunnel(ctx, &t, ch->server, ch->hop, ch->chain);
	}
	return tunnel_any(ctx, &t, ch->server, ch->hop, ch->chain);
}

#endif
