/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stateless forwarding modes for slow path packets: the counterpart of tunnel.h,
 * gue.h, direct_nat.h and dr.h.
 *
 * If a packet's own header carries the Fairlead option (dsr-nat, and dr with
 * second-chance), the client's options and extension headers are removed: the
 * backend's node finds our option at a fixed place, and only a load balancer can
 * write one. In a tunnel they stay.
 */
#ifndef FAIRLEAD_BALANCER_SLOW_PATH_SEND_H
#define FAIRLEAD_BALANCER_SLOW_PATH_SEND_H

#include "edit.h"
#include "icmp.h"
#include "scratch.h"
#include "send.h"
#include "packet_too_big.h"
#include "tunnel.h"
#include "vlan.h"

/* Finds the next hop to the chosen backend for a packet of len bytes. */
static __always_inline enum way slow_way(struct xdp_md *ctx, struct rare *r,
					 const struct choice *ch, __u32 len)
{
	enum way way = WAY_BACK;
	__u32 mtu = 0;

	r->mtu = 0xffff;
	if (r->tagged) {
		if (bpf_check_mtu(ctx, 0, &mtu, 0, 0) < 0)
			return WAY_NO_ROUTE;
		r->mtu = mtu;
	} else {
		way = way_to(ctx, ch);
		if (way_leads_nowhere(way))
			return way;
		if (way != WAY_KERNEL)
			r->mtu = ch->hop->mtu;
	}
	return len > r->mtu ? WAY_TOO_BIG : way;
}

/* Counts a packet sent to a backend. */
static __always_inline int slow_counted(const struct rare *r, const struct frontend *f,
					const struct choice *ch, int verdict)
{
	if (sent(verdict) && !r->answered)
		count(f->id, ch->cpu, r->p.len, r->pick.new_flow);
	return verdict;
}

static __always_inline int slow_nowhere(struct xdp_md *ctx, struct rare *r, enum way way)
{
	return way == WAY_TOO_BIG ? too_big(ctx, r) : drop(ctx, DROP_NO_ROUTE);
}

/* Prepares the Ethernet header for transmission in r->l2: to the next hop, or as
 * received, so that the kernel still accepts the frame.
 */
static __always_inline bool slow_l2(struct xdp_md *ctx, struct rare *r, const __u8 *macs,
				    enum way way)
{
	if (!vlan_l2(ctx, r))
		return false;
	if (r->tagged)
		vlan_turn(r);
	else if (way != WAY_KERNEL)
		__builtin_memcpy(r->l2, macs, 2 * ETH_ALEN);
	return true;
}

/* The last step of a packet sent with its own header, through the next hop with these
 * MAC addresses.
 */
static __always_inline int slow_leave(struct xdp_md *ctx, struct rare *r, const __u8 *macs,
				      __u32 ifindex, enum way way)
{
	long failed;

	if (way == WAY_KERNEL)
		return XDP_PASS;
	if (r->v6) {
		r->own.ip.v6.hop_limit--;
		failed = bpf_xdp_store_bytes(ctx, r->own.l3, &r->own.ip, sizeof(struct ipv6hdr));
	} else {
		ipv4_decrement_ttl(&r->own.ip.v4);
		failed = bpf_xdp_store_bytes(ctx, r->own.l3, &r->own.ip, sizeof(struct iphdr));
	}
	if (failed || !slow_l2(ctx, r, macs, way) || !vlan_put(ctx, r))
		return drop(ctx, DROP_NO_HEADROOM);
	return go(way, r->tagged ? r->ingress : ifindex);
}

/* Returns where the part starts that remains when the client's options are removed. A
 * fragment header and everything after it remain.
 */
static __always_inline __u32 slow_keep(const struct rare *r)
{
	return r->own.fragment ? r->own.fragment : r->own.l4;
}

/* Returns the size of the client's options. */
static __always_inline __u32 slow_stripped(const struct rare *r)
{
	return slow_keep(r) - r->own.l3 - (r->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

static __always_inline __u8 slow_keep_proto(const struct rare *r)
{
	return r->own.fragment ? IPPROTO_FRAGMENT : r->own.proto;
}

/* Replaces the options of the IPv4 header. Its checksum is updated incrementally,
 * because a header that arrived broken must not leave valid.
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
	ip->nexthdr = bytes ? IPPROTO_DSTOPTS : slow_keep_proto(r);
}

/* Replaces the client's options with bytes of r->front. */
__noinline int reshape(struct xdp_md *ctx, struct rare *r, __u32 bytes)
{
	if (!r)
		return -1;
	__u32 stripped = slow_stripped(r), l2 = within(r->own.l3, 32);
	__u32 header = r->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (!stripped && !bytes)
		return 0;
	if (l2 < sizeof(struct ethhdr) || l2 > L2_MAX || bytes > FRONT_MAX)
		return -1;
	if (r->v6)
		reshape_v6(r, stripped, bytes);
	else if (!reshape_v4(r, stripped, bytes))
		return -1;
	if (!vlan_l2(ctx, r) || bpf_xdp_adjust_head(ctx, (int)stripped - (int)bytes) ||
	    !vlan_put(ctx, r))
		return -1;
	if (r->v6 ? bpf_xdp_store_bytes(ctx, l2, &r->own.ip, sizeof(struct ipv6hdr))
		  : bpf_xdp_store_bytes(ctx, l2, &r->own.ip, sizeof(struct iphdr)))
		return -1;
	if (!bytes)
		return 0;
	bytes = within(bytes, 256);
	return bytes > FRONT_MAX ? -1 : bpf_xdp_store_bytes(ctx, l2 + header, r->front, bytes);
}

/* Passes the frame's packet, destined to dst, to the tag code. Its ports count only
 * if whole is set, and it has ports and is no fragment.
 */
static __always_inline void slow_auth_packet(const struct rare *r, const struct addr *dst,
					     bool whole)
{
	whole = whole && has_ports(r->own.proto) && !is_fragment(&r->own);
	auth_packet(&r->sender, dst, whole ? &r->p : NULL);
}

/* Builds the option with an authentication tag for a packet to a backend, or with dr
 * to its original destination. Returns 0 on failure.
 */
__noinline __u32 slow_option_tagged(struct rare *r, const struct server *server,
				    const struct chain *chain, bool nat, bool keep_port)
{
	struct auth_scratch *s = auth_scratch_get();

	if (!r || !server || !s)
		return 0;
	slow_auth_packet(r, nat ? &server->addr : &r->vip, true);
	if (s->inner.proto && nat && !keep_port)
		s->inner.dport = server->port;
	if (auth_own(&r->p, chain))
		return 0;
	__builtin_memcpy(r->front, s->front, 128);
	if (r->v6)
		r->front[0] = slow_keep_proto(r);
	return auth_own_bytes(chain, r->v6);
}

/* Builds the option of the packet's own header and returns its size. Later fragments
 * and ICMP errors open no flow: they carry the chain, or no option. Global, like the
 * steps below, so that the verifier checks each once.
 */
__noinline __u32 slow_option(struct rare *r, const struct chain *chain)
{
	__u64 sum = 0;
	bool ok;

	if (!r || (!chain && (r->own.offset || r->is_error)) || !needs_dsr_option(&r->p, chain))
		return 0;
	if (r->v6) {
		ok = option_put_own_v6(r->front, r->front + FRONT_MAX, &r->p, chain);
		r->front[0] = slow_keep_proto(r);
	} else {
		ok = option_put_own_v4(r->front, r->front + FRONT_MAX, &r->p, chain, &sum);
	}
	return ok ? option_bytes(1 + chain_length(chain), r->v6) : 0;
}

/* Rewrites the destination to the backend, and in an ICMP error also the quoted
 * source.
 */
static __always_inline bool slow_address(struct xdp_md *ctx, struct rare *r,
					 const struct frontend *f, const struct choice *ch)
{
	r->from = r->p.t;
	r->to = r->p.t;
	r->to.dst = ch->server->addr;
	if (!(f->flags & FRONTEND_KEEP_PORT))
		r->to.dport = ch->server->port;
	if (r->is_error)
		return icmp_turn(ctx, r, false, true) == 0;
	return edit(ctx, r, &r->own) == 0;
}

static __always_inline int slow_direct_on(struct xdp_md *ctx, struct rare *r,
					  const struct frontend *f, const struct choice *ch)
{
	bool nat = f->method == METHOD_DIRECT_NAT;
	bool marks = nat || auth_policy || f->survival == SURVIVAL_SECOND_CHANCE;
	__s32 less = marks ? slow_stripped(r) : 0;
	__u32 bytes;
	enum way way;

	bytes = marks ? slow_option(r, ch->chain) : 0;
	if (auth_policy && (bytes || !nat))
		bytes = slow_option_tagged(r, ch->server, ch->chain, nat,
					   f->flags & FRONTEND_KEEP_PORT);
	r->more = bytes - less;
	way = slow_way(ctx, r, ch, r->p.len + r->more);
	if (way == WAY_TOO_BIG && bytes && r->p.t.proto == IPPROTO_UDP) {
		/* A full-size datagram gets no option: other packets carry it for its
		 * flow.
		 */
		bytes = 0;
		r->more = -less;
		way = slow_way(ctx, r, ch, r->p.len + r->more);
	}
	if (way_leads_nowhere(way))
		return slow_nowhere(ctx, r, way);
	if (!nat && (r->tagged || way == WAY_KERNEL || ch->hop->beyond))
		return drop(ctx, DROP_NO_NEIGHBOR);
	if (nat && !slow_address(ctx, r, f, ch))
		return drop(ctx, edit_refusal(r));
	if (marks && reshape(ctx, r, bytes))
		return drop(ctx, DROP_NO_HEADROOM);
	return slow_leave(ctx, r, ch->hop->macs, ch->hop->ifindex, way);
}

/* dsr-nat and dr: with the packet's own header. */
__noinline int slow_direct(struct xdp_md *ctx, struct rare *r, const struct frontend *f)
{
	struct choice ch;

	if (!r || !f)
		return XDP_ABORTED;
	if (!choice_for(&ch, &r->pick))
		return drop(ctx, DROP_NO_BACKEND);
	return slow_counted(r, f, &ch, slow_direct_on(ctx, r, f, &ch));
}

/* The same with an authentication tag. */
__noinline bool slow_front_tagged(struct rare *r, const struct server *server,
				  const struct chain *chain, enum way way)
{
	struct auth_scratch *s = auth_scratch_get();
	struct tunnelling t = {.way = way};
	__u32 header;

	if (!r || !server || !s)
		return false;
	t.hash = r->pick.hash;
	t.len = r->p.len;
	t.tos = r->p.tos;
	t.gue = r->gue;
	t.inner6 = r->v6;
	header = r->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	slow_auth_packet(r, &r->vip, r->own.l4 == r->own.l3 + header);
	if (auth_front(&t, server, chain) != (__u32)r->more)
		return false;
	__builtin_memcpy(r->front, s->front, AUTH_FRONT);
	return true;
}

static __always_inline bool slow_front_by(struct rare *r, const struct server *server,
					  const struct outer *o, const void *end, bool outer6)
{
	const __u32 header = outer6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (o->gue && !gue_put(r->front + header, end, o->chain, o->len + o->bytes - header,
			       o->hash, o->inner6, outer6))
		return false;
	return outer6 ? tunnel_put_v6(r->front, end, o, &server->addr)
		      : tunnel_put_v4(r->front, end, o, addr_to_v4(&server->addr));
}

/* Builds all headers that precede the packet, in r->front. */
__noinline bool slow_front(struct rare *r, const struct server *server, const struct chain *chain,
			   __u8 ttl)
{
	struct outer o = {.chain = chain, .ttl = ttl};
	void *end;

	if (!r || !server)
		return false;
	o.bytes = r->more;
	o.hash = r->pick.hash;
	o.len = r->p.len;
	o.tos = r->p.tos;
	o.gue = r->gue;
	o.inner6 = r->v6;
	end = r->front + FRONT_MAX;
	return addr_is_v4(&server->addr) ? slow_front_by(r, server, &o, end, false)
					 : slow_front_by(r, server, &o, end, true);
}

/* Prepends r->front to the packet, and the Ethernet header before it. */
__noinline bool slow_wrap(struct xdp_md *ctx, struct rare *r, const struct next_hop *hop,
			  enum way way, bool outer6)
{
	__be16 proto = outer6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	__u32 bytes, l2;

	if (!r || !hop)
		return false;
	bytes = within(r->more, 256);
	if ((__s32)bytes != r->more || bytes > FRONT_MAX)
		return false;
	if (!slow_l2(ctx, r, hop->macs, way) || bpf_xdp_adjust_head(ctx, -(int)bytes))
		return false;
	l2 = within(r->own.l3, 32);
	if (l2 < sizeof(struct ethhdr) || l2 > L2_MAX)
		return false;
	__builtin_memcpy(r->l2 + l2 - sizeof(proto), &proto, sizeof(proto));
	return vlan_put(ctx, r) && !bpf_xdp_store_bytes(ctx, l2, r->front, bytes);
}

/* Sends to any backend, with GUE or IP-in-IP according to r->gue. */
__noinline int slow_tunnel_any(struct xdp_md *ctx, struct rare *r, const struct server *server,
			       struct next_hop *hop, const struct chain *chain)
{
	struct choice ch = {.server = server, .hop = hop, .chain = chain};
	bool outer6;
	enum way way;

	if (!r || !server || !hop) /* for the verifier */
		return XDP_ABORTED;
	outer6 = !addr_is_v4(&server->addr);
	r->more = auth_policy ? auth_tunnel_bytes(chain, r->gue, outer6)
			      : tunnel_bytes(chain, r->gue, outer6);
	way = slow_way(ctx, r, &ch, r->p.len + r->more);
	if (way_leads_nowhere(way))
		return slow_nowhere(ctx, r, way);
	if (addr_is_zero(outer6 ? &set.own6 : &set.own4))
		return drop(ctx, DROP_NO_SOURCE);
	if (auth_policy ? !slow_front_tagged(r, server, chain, way)
			: !slow_front(r, server, chain,
				      way == WAY_KERNEL ? TUNNEL_TTL : TUNNEL_TTL - 1))
		return drop(ctx, DROP_NO_HEADROOM);
	if (!slow_wrap(ctx, r, hop, way, outer6))
		return drop(ctx, DROP_NO_HEADROOM);
	return go(way, r->tagged ? r->ingress : hop->ifindex);
}

__noinline int slow_tunnel(struct xdp_md *ctx, struct rare *r, const struct frontend *f)
{
	struct choice ch;

	if (!r || !f)
		return XDP_ABORTED;
	if (!choice_for(&ch, &r->pick))
		return drop(ctx, DROP_NO_BACKEND);
	r->gue = f->encapsulation == ENCAPSULATION_GUE;
	return slow_counted(r, f, &ch, slow_tunnel_any(ctx, r, ch.server, ch.hop, ch.chain));
}

#endif
