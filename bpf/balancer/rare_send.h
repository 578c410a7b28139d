/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sending by the methods that keep no state, whatever the packet looks like:
 * the rare program's twin of tunnel.h, gue.h, direct_nat.h and dr.h.
 *
 * Where a packet's own header is to carry the Fairlead option (direct-nat, and
 * dr with a second chance) the client's options and extension headers end
 * here: the server's node finds ours where it looks for it, and nobody but a
 * balancer can write one. In a tunnel they stay.
 */
#ifndef FAIRLEAD_BALANCER_RARE_SEND_H
#define FAIRLEAD_BALANCER_RARE_SEND_H

#include "edit.h"
#include "icmp.h"
#include "rare_option.h"
#include "scratch.h"
#include "too_big.h"
#include "tunnel.h"
#include "vlan.h"

/* Finds the way to r->d.to for a packet of len bytes. */
__noinline int rare_way(struct xdp_md *ctx, struct rare *r, __u32 len, bool v6)
{
	if (!r)
		return WAY_NO_ROUTE;
	__u32 mtu = 0;
	enum way way;

	r->mtu = 0xffff;
	if (len > 0xffff)
		return WAY_TOO_BIG;
	if (r->tagged) {
		if (bpf_check_mtu(ctx, 0, &mtu, 0, 0) < 0)
			return WAY_NO_ROUTE;
		r->mtu = mtu;
		return len > mtu ? WAY_TOO_BIG : WAY_BACK;
	}
	way = v6 ? find_way(ctx, &r->d, len, true) : find_way(ctx, &r->d, len, false);
	r->mtu = r->d.fib.mtu_result;
	return way;
}

static __always_inline int rare_nowhere(struct xdp_md *ctx, struct rare *r, enum way way)
{
	return way == WAY_TOO_BIG ? too_big(ctx, r) : drop(ctx, DROP_NO_ROUTE);
}

/* The Ethernet header that the packet leaves with, in r->l2. */
static __always_inline bool rare_l2(struct xdp_md *ctx, struct rare *r, enum way way)
{
	if (r->tagged)
		return vlan_l2(ctx, r, NULL, NULL);
	if (way == WAY_KERNEL)
		return bpf_xdp_load_bytes(ctx, 0, r->l2, sizeof(struct ethhdr)) == 0;
	return vlan_l2(ctx, r, r->d.fib.dmac, r->d.fib.smac);
}

/* The last step of a packet that leaves under its own header. */
__noinline int rare_leave(struct xdp_md *ctx, struct rare *r, enum way way)
{
	if (!r)
		return XDP_ABORTED;
	bool failed;

	if (way == WAY_KERNEL)
		return XDP_PASS;
	if (r->v6) {
		r->own.ip.v6.hop_limit--;
		failed = bpf_xdp_store_bytes(ctx, r->own.l3, &r->own.ip, sizeof(struct ipv6hdr));
	} else {
		ipv4_decrement_ttl(&r->own.ip.v4);
		failed = bpf_xdp_store_bytes(ctx, r->own.l3, &r->own.ip, sizeof(struct iphdr));
	}
	if (failed || !rare_l2(ctx, r, way) || !vlan_put(ctx, r))
		return drop(ctx, DROP_NO_ROOM);
	return go(way, r->d.fib.ifindex);
}

/* Where that begins which stays when the client's options go. A fragment
 * header stays, and what is behind it.
 */
static __always_inline __u32 rare_keep(const struct rare *r)
{
	return r->own.fragment ? r->own.fragment : r->own.l4;
}

/* How many bytes of the client's options there are. */
static __always_inline __u32 rare_stripped(const struct rare *r)
{
	return rare_keep(r) - r->own.l3 - (r->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

static __always_inline __u8 rare_keep_proto(const struct rare *r)
{
	return r->own.fragment ? IPPROTO_FRAGMENT : r->own.proto;
}

/* The IPv4 header with other options; its checksum by difference, as a header
 * that came broken must not leave mended.
 */
static __always_inline bool reshape_v4(struct rare *r, __u32 stripped, __u32 bytes)
{
	struct iphdr *ip = &r->own.ip.v4;
	__be32 *word = (__be32 *)ip;
	__be32 old = word[0];
	__s64 diff;

	if (stripped > OPTIONS4_MAX || bytes > OPTIONS4_MAX)
		return false;
	ip->ihl = (sizeof(*ip) + bytes) / 4;
	ip->tot_len = bpf_htons(bpf_ntohs(ip->tot_len) + bytes - stripped);
	diff = bpf_csum_diff((__be32 *)r->options, stripped, (__be32 *)r->front, bytes, 0);
	if (diff < 0)
		return false;
	ip->check = csum_apply(ip->check, csum_diff4(diff, old, word[0]));
	return true;
}

static __always_inline void reshape_v6(struct rare *r, __u32 stripped, __u32 bytes)
{
	struct ipv6hdr *ip = &r->own.ip.v6;

	ip->payload_len = bpf_htons(bpf_ntohs(ip->payload_len) + bytes - stripped);
	ip->nexthdr = bytes ? IPPROTO_DSTOPTS : rare_keep_proto(r);
}

/* Puts so many bytes of r->front in the place of the client's options. */
__noinline int reshape(struct xdp_md *ctx, struct rare *r, __u32 bytes)
{
	if (!r)
		return -1;
	__u32 stripped = rare_stripped(r), l2 = r->own.l3;
	__u32 header = r->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (!stripped && !bytes)
		return 0;
	if (l2 < sizeof(struct ethhdr) || l2 > L2_MAX || bytes > FRONT_MAX)
		return -1;
	if (r->v6)
		reshape_v6(r, stripped, bytes);
	else if (!reshape_v4(r, stripped, bytes))
		return -1;
	if (bpf_xdp_load_bytes(ctx, 0, r->l2, l2) ||
	    bpf_xdp_adjust_head(ctx, (int)stripped - (int)bytes) || !vlan_put(ctx, r))
		return -1;
	if (r->v6 ? bpf_xdp_store_bytes(ctx, l2, &r->own.ip, sizeof(struct ipv6hdr))
		  : bpf_xdp_store_bytes(ctx, l2, &r->own.ip, sizeof(struct iphdr)))
		return -1;
	return bytes ? bpf_xdp_store_bytes(ctx, l2 + header, r->front, bytes) : 0;
}

/* A packet that may open a flow, for the server's node to remember its VIP. */
static __always_inline bool rare_tells_vip(const struct rare *r, const struct chain *c)
{
	if (r->own.offset)
		return false;
	if (c)
		return true;
	return !r->is_error && (r->p.t.proto == IPPROTO_UDP || r->p.flags & TCP_OPENS);
}

/* Builds the option of the packet's own header and gives its bytes. */
static __always_inline __u32 rare_own_option(struct rare *r)
{
	const struct chain *c = r->own.offset ? NULL : rare_chain(r);
	bool tells = rare_tells_vip(r, c);

	return r->v6 ? option_put(r, 0, c, tells, rare_keep_proto(r), true)
		     : option_put(r, 0, c, tells, 0, false);
}

/* Changes the destination to the server, in an ICMP error also the source that
 * it quotes.
 */
static __always_inline bool direct_nat_edit(struct xdp_md *ctx, struct rare *r)
{
	r->from = r->p.t;
	r->to = r->p.t;
	r->to.dst = r->who.addr;
	r->to.dport = r->who.port;
	if (r->is_error)
		return icmp_turn(ctx, r, NULL, &r->who.addr) == 0;
	return edit(ctx, r, &r->own) == 0;
}

/* direct-nat and dr: under the packet's own header. */
__noinline int rare_direct(struct xdp_md *ctx, struct rare *r)
{
	if (!r)
		return XDP_ABORTED;
	bool nat = r->who.method == METHOD_DIRECT_NAT;
	bool marks = nat || r->who.survival == SURVIVAL_SECOND_CHANCE;
	__u32 bytes = marks ? rare_own_option(r) : 0;
	__u32 len = r->own.end - r->own.l3;
	enum way way;

	r->d.to = r->p.t;
	r->d.to.dst = r->who.addr;
	r->d.to.dport = r->who.port;
	r->more = marks ? (__s32)bytes - (__s32)rare_stripped(r) : 0;
	if (r->tagged && !nat)
		return drop(ctx, DROP_NO_ROUTE);
	way = rare_way(ctx, r, len + r->more, r->v6);
	if (way == WAY_TOO_BIG && bytes && r->p.t.proto == IPPROTO_UDP) {
		/* A full datagram goes without: its flow is known from others. */
		r->more -= bytes;
		bytes = 0;
		way = rare_way(ctx, r, len + r->more, r->v6);
	}
	if (way_leads_nowhere(way))
		return rare_nowhere(ctx, r, way);
	if (nat && !direct_nat_edit(ctx, r))
		return drop(ctx, DROP_NO_ROOM);
	if (marks && reshape(ctx, r, bytes))
		return drop(ctx, DROP_NO_ROOM);
	return rare_leave(ctx, r, way);
}

/* GUE (draft-ietf-intarea-gue-09) with the chain as private data. */
struct gue_front {
	__be16 source;
	__be16 dest;
	__be16 len;
	__sum16 check;
	__u8 hlen; /* version and control bit are zero */
	__u8 proto;
	__be16 flags;
	__u8 magic;
	__u8 n;
	__be16 zero;
};

#define GUE_HEADER 12 /* UDP and GUE, without private data */
#define GUE_MAGIC OPTION4_TYPE
#define GUE_FIRST_PORT 49152

static __always_inline __u32 gue_bytes(const struct rare *r, const struct chain *c, bool v6)
{
	__u32 n = rare_chain_left(r, c);

	return GUE_HEADER + (n ? 4 + ((ENDPOINT_SIZE(v6) * n + 3) & ~3) : 0);
}

/* Writes UDP, GUE and the chain at r->front + at, a constant. */
static __always_inline void gue_put(struct rare *r, __u32 at, const struct chain *c, __u32 bytes,
				    bool v6)
{
	struct gue_front *g = (struct gue_front *)(r->front + at);
	__u32 n = rare_chain_left(r, c);

	if (c) {
		chain_put((__u8 *)(g + 1), c, r->who.skip, v6);
		front_pad(r, at + sizeof(*g) + ENDPOINT_SIZE(v6) * n);
	}
	g->source = bpf_htons(GUE_FIRST_PORT + (r->who.hash & 0x3fff));
	g->dest = bpf_htons(set.gue_port);
	g->len = bpf_htons(r->own.end - r->own.l3 + bytes);
	g->check = 0;
	g->hlen = (bytes - GUE_HEADER) / 4;
	g->proto = r->v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	g->flags = 0;
	if (n) {
		g->magic = GUE_MAGIC;
		g->n = n;
		g->zero = 0;
	}
}

/* The IPv4 header of the tunnel; bytes is all that goes before the packet. */
static __always_inline bool front_v4(struct rare *r, const struct chain *c, bool gue, __u32 *bytes)
{
	struct iphdr *ip = (struct iphdr *)r->front;
	__u32 header = sizeof(*ip);
	__s64 sum;

	*bytes = header;
	if (gue) {
		*bytes += gue_bytes(r, c, false);
		gue_put(r, sizeof(*ip), c, *bytes - header, false);
	} else {
		header += option_put(r, sizeof(*ip), c, false, 0, false);
		*bytes = header;
	}
	if (header > sizeof(*ip) + OPTIONS4_MAX || *bytes > FRONT_MAX)
		return false;
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = header / 4;
	ip->tos = r->p.tos;
	ip->tot_len = bpf_htons(r->own.end - r->own.l3 + *bytes);
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = TUNNEL_TTL;
	ip->protocol = gue ? IPPROTO_UDP : r->v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	ip->saddr = addr_to_v4(&r->d.to.src);
	ip->daddr = addr_to_v4(&r->d.to.dst);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)ip, header, 0);
	ip->check = ~csum_fold(sum);
	return sum >= 0;
}

static __always_inline bool front_v6(struct rare *r, const struct chain *c, bool gue, __u32 *bytes)
{
	struct ipv6hdr *ip = (struct ipv6hdr *)r->front;
	__u8 proto = r->v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;

	*bytes = sizeof(*ip);
	if (gue) {
		*bytes += gue_bytes(r, c, true);
		gue_put(r, sizeof(*ip), c, *bytes - sizeof(*ip), true);
		proto = IPPROTO_UDP;
	} else if (c) {
		*bytes += option_put(r, sizeof(*ip), c, false, proto, true);
		proto = IPPROTO_DSTOPTS;
	}
	*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)r->p.tos << 20 | (r->who.hash & 0xfffff));
	ip->payload_len = bpf_htons(r->own.end - r->own.l3 + *bytes - sizeof(*ip));
	ip->nexthdr = proto;
	ip->hop_limit = TUNNEL_TTL;
	addr_to_v6(&ip->saddr, &r->d.to.src);
	addr_to_v6(&ip->daddr, &r->d.to.dst);
	return *bytes <= FRONT_MAX;
}

/* Puts r->front before the packet, and the Ethernet header before that. */
__noinline int rare_wrap(struct xdp_md *ctx, struct rare *r, enum way way, bool outer6)
{
	if (!r)
		return -1;
	__u32 bytes = r->more, l2 = r->own.l3;
	__be16 proto = outer6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);

	if (bytes < sizeof(struct iphdr) || bytes > FRONT_MAX)
		return -1;
	if (way != WAY_KERNEL) {
		if (outer6)
			((struct ipv6hdr *)r->front)->hop_limit--;
		else
			ipv4_decrement_ttl((struct iphdr *)r->front);
	}
	if (!rare_l2(ctx, r, way) || bpf_xdp_adjust_head(ctx, -(int)bytes))
		return -1;
	if (l2 < sizeof(struct ethhdr) || l2 > L2_MAX)
		return -1;
	__builtin_memcpy(r->l2 + l2 - sizeof(proto), &proto, sizeof(proto));
	return vlan_put(ctx, r) ? bpf_xdp_store_bytes(ctx, l2, r->front, bytes) : -1;
}

__noinline int rare_front(struct rare *r, bool outer6)
{
	if (!r)
		return -1;
	bool gue = r->who.encapsulation == ENCAPSULATION_GUE;
	const struct chain *c = rare_chain(r);
	__u32 bytes = 0;

	if (!(outer6 ? front_v6(r, c, gue, &bytes) : front_v4(r, c, gue, &bytes)))
		return -1;
	r->more = bytes;
	return 0;
}

__noinline int rare_tunnel(struct xdp_md *ctx, struct rare *r)
{
	if (!r)
		return XDP_ABORTED;
	bool outer6 = !addr_is_v4(&r->who.addr);
	const struct addr *own = outer6 ? &set.own6 : &set.own4;
	enum way way;

	if (addr_is_zero(own))
		return drop(ctx, DROP_NO_SOURCE);
	__builtin_memset(&r->d.to, 0, sizeof(r->d.to));
	r->d.to.src = *own;
	r->d.to.dst = r->who.addr;
	if (rare_front(r, outer6))
		return drop(ctx, DROP_NO_ROOM);
	way = rare_way(ctx, r, r->own.end - r->own.l3 + r->more, outer6);
	if (way_leads_nowhere(way))
		return rare_nowhere(ctx, r, way);
	if (rare_wrap(ctx, r, way, outer6))
		return drop(ctx, DROP_NO_ROOM);
	return go(way, r->d.fib.ifindex);
}

#endif
