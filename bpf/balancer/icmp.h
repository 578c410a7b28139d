/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP and ICMPv6 to a VIP. An echo request of any size is answered here, fragment by
 * fragment, by swapping its addresses. An error identifies a flow by the packet it
 * quotes. It goes where that flow goes, with the quoted packet rewritten like the
 * flow's packets.
 */
#ifndef FAIRLEAD_BALANCER_ICMP_H
#define FAIRLEAD_BALANCER_ICMP_H

#include "edit.h"
#include "options.h"
#include "scratch.h"
#include "packet_too_big.h"
#include "vlan.h"

/* Types (RFC 792, RFC 4443). */
enum icmp_type {
	ICMP4_ECHO_REPLY = 0,
	ICMP4_ECHO = 8,
	ICMP4_TIME_EXCEEDED = 11,
	ICMP4_PARAMETER_PROBLEM = 12,
	ICMP6_UNREACHABLE = 1,
	ICMP6_PARAMETER_PROBLEM = 4,
	ICMP6_ECHO = 128,
	ICMP6_ECHO_REPLY = 129,
	ICMP6_ROUTER_SOLICITATION = 133,
	ICMP6_REDIRECT = 137,
};

#define ICMP_HEADER 8

static __always_inline bool is_icmp(const struct spot *s, bool v6)
{
	return s->proto == (v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
}

static __always_inline bool icmp_is_error(__u8 type, bool v6)
{
	if (v6)
		return type >= ICMP6_UNREACHABLE && type <= ICMP6_PARAMETER_PROBLEM;
	return type == ICMP4_UNREACHABLE || type == ICMP4_TIME_EXCEEDED ||
	       type == ICMP4_PARAMETER_PROBLEM;
}

static __always_inline bool icmp_is_echo(__u8 type, bool v6)
{
	return type == (v6 ? ICMP6_ECHO : ICMP4_ECHO);
}

/* Reports neighbor discovery, including unicast solicitations. No router forwards it
 * (RFC 4861, 6.1 and 7.1: the hop limit is 255).
 */
static __always_inline bool icmp_is_discovery(const struct rare *r)
{
	return r->v6 && r->own.ip.v6.hop_limit == 255 &&
	       r->icmp_type >= ICMP6_ROUTER_SOLICITATION && r->icmp_type <= ICMP6_REDIRECT;
}

/* Changes the type. The code is zero and stays. */
static __always_inline bool echo_retype(struct xdp_md *ctx, struct rare *r)
{
	struct icmp_answer icmp;
	__be16 old;

	if (bpf_xdp_load_bytes(ctx, r->own.l4, &icmp, sizeof(icmp)))
		return false;
	old = *(__be16 *)&icmp;
	icmp.type = r->v6 ? ICMP6_ECHO_REPLY : ICMP4_ECHO_REPLY;
	icmp.check = csum_apply(icmp.check, csum_diff2(0, old, *(__be16 *)&icmp));
	return bpf_xdp_store_bytes(ctx, r->own.l4, &icmp, sizeof(icmp)) == 0;
}

static __always_inline bool echo_turn(struct xdp_md *ctx, struct rare *r)
{
	if (r->v6) {
		struct ipv6hdr *ip = &r->own.ip.v6;

		addr_to_v6(&ip->saddr, &r->p.t.dst);
		addr_to_v6(&ip->daddr, &r->p.t.src);
		ip->hop_limit = ANSWER_TTL;
		return bpf_xdp_store_bytes(ctx, r->own.l3, ip, sizeof(*ip)) == 0;
	}
	struct iphdr *ip = &r->own.ip.v4;
	__be16 old = bpf_htons(ip->ttl << 8), new = bpf_htons(ANSWER_TTL << 8);

	ip->saddr = addr_to_v4(&r->p.t.dst);
	ip->daddr = addr_to_v4(&r->p.t.src);
	ip->ttl = ANSWER_TTL;
	ip->check = csum_apply(ip->check, csum_diff2(0, old, new));
	return bpf_xdp_store_bytes(ctx, r->own.l3, ip, sizeof(*ip)) == 0;
}

/* Answers an echo request or a later fragment of one: a VIP receives no other ICMP
 * large enough to be fragmented.
 */
__noinline int echo(struct xdp_md *ctx, struct rare *r)
{
	if (!r)
		return XDP_ABORTED;
	if (!r->own.offset && !echo_retype(ctx, r))
		return drop(ctx, DROP_MALFORMED);
	if (!echo_turn(ctx, r) || !vlan_l2(ctx, r))
		return drop(ctx, DROP_NO_HEADROOM);
	vlan_turn(r);
	if (!vlan_put(ctx, r))
		return drop(ctx, DROP_NO_HEADROOM);
	trace_event(TRACE_ANSWER, r->icmp_type, 0);
	return go(WAY_BACK, ctx->ingress_ifindex);
}

/* Reads the packet that an error quotes into r->quoted and its flow, in the direction
 * of the flow's packets, into r->p. Fails if the transport header is missing or
 * belongs to a later fragment.
 */
__noinline int icmp_quoted(struct xdp_md *ctx, struct rare *r)
{
	if (!r)
		return -1;
	struct spot *q = &r->quoted;
	struct tuple *t = &r->p.t;
	__be16 ports[4]; /* eight bytes: the least that is quoted (RFC 792) */

	q->l3 = r->own.l4 + ICMP_HEADER;
	if (!spot_read(ctx, q, r->own.end, true, r->v6) || q->broken || q->offset)
		return -1;
	if (!has_ports(q->proto) || q->l4 + sizeof(ports) > q->end ||
	    bpf_xdp_load_bytes(ctx, q->l4, ports, sizeof(ports)))
		return -1;
	if (r->v6) {
		addr_from_v6(&t->src, &q->ip.v6.daddr);
		addr_from_v6(&t->dst, &q->ip.v6.saddr);
	} else {
		addr_from_v4(&t->src, q->ip.v4.daddr);
		addr_from_v4(&t->dst, q->ip.v4.saddr);
	}
	t->proto = q->proto;
	t->sport = ports[1];
	t->dport = ports[0];
	r->p.flags = 0;
	return 0;
}

/* Returns the addresses of the frame's own packet. */
static __always_inline void icmp_own(const struct rare *r, struct addr *src, struct addr *dst)
{
	if (r->v6) {
		addr_from_v6(src, &r->own.ip.v6.saddr);
		addr_from_v6(dst, &r->own.ip.v6.daddr);
	} else {
		addr_from_v4(src, r->own.ip.v4.saddr);
		addr_from_v4(dst, r->own.ip.v4.daddr);
	}
}

/* Translates the sequence number in a quoted header to the sender's, which verifies
 * it (RFC 5927, 4.1).
 */
static __always_inline int icmp_shift(struct xdp_md *ctx, struct rare *r)
{
	const struct spot *q = &r->quoted;
	__u32 at = q->l4 + offsetof(struct tcphdr, seq);
	__be32 old, new;
	__u64 change;

	if (!r->shift)
		return 0;
	if (bpf_xdp_load_bytes(ctx, at, &old, sizeof(old)))
		return -1;
	new = bpf_htonl(bpf_ntohl(old) + r->shift);
	change = csum_diff4(0, old, new);
	r->diff += change;
	if (bpf_xdp_store_bytes(ctx, at, &new, sizeof(new)))
		return -1;
	return edit_check(ctx, r, q->l4 + offsetof(struct tcphdr, check), q->end, change);
}

/* Turns an error about the flow r->from into one about the flow r->to. The quoted
 * packet went in the opposite direction. src and dst select whether the error's own
 * source and destination change to the flow's new ones.
 */
__noinline int icmp_turn(struct xdp_md *ctx, struct rare *r, bool src, bool dst)
{
	struct tuple to;
	__u64 diff;

	if (!r)
		return -1;
	to = r->to;
	tuple_turn(&r->from);
	tuple_turn(&r->to);
	if (edit(ctx, r, &r->quoted) || icmp_shift(ctx, r))
		return -1;
	diff = r->diff;
	__builtin_memset(&r->from, 0, sizeof(r->from));
	icmp_own(r, &r->from.src, &r->from.dst);
	r->to = r->from;
	if (src)
		r->to.src = to.src;
	if (dst)
		r->to.dst = to.dst;
	if (edit(ctx, r, &r->own))
		return -1;
	if (r->v6)
		diff += r->diff;
	return edit_check(ctx, r, r->own.l4 + offsetof(struct icmp_answer, check), r->own.end,
			  diff);
}

#endif
