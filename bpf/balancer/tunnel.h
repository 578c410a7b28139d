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

/* Asks the kernel for the way to a server and keeps the answer. */
static __noinline enum way tunnel_ask(struct xdp_md *ctx, const struct server *server,
				      const struct addr *own, struct server_cpu *kept, __u32 len)
{
	bool v6 = !addr_is_v4(&server->addr);
	struct departure d = {.to.dst = server->addr, .to.src = *own};
	enum way way;

	kept->tick = 0;
	way = v6 ? find_way(ctx, &d, len, true) : find_way(ctx, &d, len, false);
	if (way != WAY_BACK && way != WAY_ACROSS)
		return way;
	kept->generation = server->generation;
	kept->ingress = ctx->ingress_ifindex;
	kept->ifindex = d.fib.ifindex;
	kept->mtu = d.fib.mtu_result;
	__builtin_memcpy(kept->macs, d.fib.dmac, ETH_ALEN);
	__builtin_memcpy(kept->macs + ETH_ALEN, d.fib.smac, ETH_ALEN);
	kept->tick = bpf_jiffies64();
	return way;
}

/* The kernel is asked once in a tick of its clock: what it says is never older
 * than that (10 ms at most), whether or not an agent runs.
 */
static __always_inline enum way tunnel_way(struct xdp_md *ctx, const struct server *server,
					   const struct addr *own, struct server_cpu *kept,
					   __u32 len)
{
	if (kept->tick != bpf_jiffies64() || kept->generation != server->generation ||
	    kept->ingress != ctx->ingress_ifindex || len > kept->mtu)
		return tunnel_ask(ctx, server, own, kept, len);
	return kept->ifindex == ctx->ingress_ifindex ? WAY_BACK : WAY_ACROSS;
}

/* Makes room for the outer header and writes the Ethernet header before it: to
 * the next hop, or as it came, so that the kernel still knows the frame as its
 * own. Gives where the outer IP header is to go.
 */
static __always_inline void *tunnel_grow(struct xdp_md *ctx, int bytes, __be16 proto,
					 const struct server_cpu *kept, enum way way)
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
	macs_copy(eth, way == WAY_KERNEL ? data + bytes : (const void *)kept->macs);
	eth->h_proto = proto;
	return eth + 1;
}

/* What the outer header says. */
struct outer {
	const struct addr *src;
	const struct addr *dst;
	const struct server *second; /* for the option, or NULL */
	__u8 proto;
	__u8 ttl;
};

/* In whole words, summed while they are in registers. */
static __always_inline bool tunnel_put_v4(void *l3, const struct packet *p, const struct outer *o)
{
	const int bytes = sizeof(struct iphdr) + (o->second ? sizeof(struct option4) : 0);
	struct iphdr *ip = l3;
	__be32 *word = l3;
	__be32 first = bpf_htonl(4u << 28 | (bytes / 4) << 24 | p->tos << 16 | (p->len + bytes));
	__be32 never_fragmented = bpf_htonl(0x4000); /* RFC 6864, 4.1 */
	__be32 third = bpf_htonl(o->ttl << 24 | o->proto << 16);
	__be32 src = addr_to_v4(o->src), dst = addr_to_v4(o->dst);
	__u64 sum = (__u64)first + never_fragmented + third + src + dst;

	if (!l3)
		return false;
	word[0] = first;
	word[1] = never_fragmented;
	word[2] = third;
	word[3] = src;
	word[4] = dst;
	if (o->second) {
		option4_build((struct option4 *)(ip + 1), addr_to_v4(&o->second->addr),
			      o->second->port);
		sum += (__u64)word[5] + word[6];
	}
	ip->check = ~csum_fold(sum);
	return true;
}

/* The flow label carries the flow's hash, for the routers' ECMP (RFC 6438). */
static __always_inline bool tunnel_put_v6(void *l3, const struct packet *p, const struct outer *o,
					  __u32 hash)
{
	const int option = o->second ? sizeof(struct option6) : 0;
	struct ipv6hdr *ip = l3;

	if (!l3)
		return false;
	*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)p->tos << 20 | (hash & 0xfffff));
	ip->payload_len = bpf_htons(p->len + option);
	ip->nexthdr = o->second ? IPPROTO_DSTOPTS : o->proto;
	ip->hop_limit = o->ttl;
	addr_to_v6(&ip->saddr, o->src);
	addr_to_v6(&ip->daddr, o->dst);
	if (o->second)
		option6_build((struct option6 *)(ip + 1), &o->second->addr, o->second->port,
			      o->proto);
	return true;
}

/* Called with second a constant NULL where there is none: two bodies. */
static __always_inline bool tunnel_put(struct xdp_md *ctx, const struct packet *p,
				       const struct outer *o, const struct server_cpu *kept,
				       enum way way, __u32 hash, bool outer6)
{
	const int bytes = (outer6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) +
			  (o->second ? OPTION_SIZE(outer6) : 0);
	__be16 proto = outer6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	void *l3 = tunnel_grow(ctx, bytes, proto, kept, way);

	return outer6 ? tunnel_put_v6(l3, p, o, hash) : tunnel_put_v4(l3, p, o);
}

static __always_inline int tunnel_by(struct xdp_md *ctx, const struct packet *p,
				     const struct choice *ch, const struct addr *own, __u8 proto,
				     bool outer6)
{
	struct server_cpu *kept = bpf_map_lookup_elem(&server_cpu, &ch->slot.first);
	__u32 len = p->len + (outer6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	struct outer o = {.src = own, .dst = &ch->server->addr, .proto = proto};
	enum way way;
	bool ok;

	if (!kept || addr_is_zero(own))
		return drop(ctx, DROP_NO_SOURCE);
	if (ch->second)
		len += OPTION_SIZE(outer6);
	way = tunnel_way(ctx, ch->server, own, kept, len);
	if (way_leads_nowhere(way))
		return drop_way(ctx, way);
	o.ttl = way == WAY_KERNEL ? TUNNEL_TTL : TUNNEL_TTL - 1;
	if (ch->second) {
		o.second = ch->second;
		ok = tunnel_put(ctx, p, &o, kept, way, ch->hash, outer6);
	} else {
		o.second = NULL;
		ok = tunnel_put(ctx, p, &o, kept, way, ch->hash, outer6);
	}
	return ok ? go(way, kept->ifindex) : drop(ctx, DROP_NO_ROOM);
}

static __always_inline int tunnel(struct xdp_md *ctx, const struct packet *p,
				  const struct choice *ch, bool v6)
{
	__u8 proto = v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;

	if (addr_is_v4(&ch->server->addr))
		return tunnel_by(ctx, p, ch, &set.own4, proto, false);
	return tunnel_by(ctx, p, ch, &set.own6, proto, true);
}

#endif
