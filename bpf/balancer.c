/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The balancer: an XDP program that takes what is addressed to a frontend and
 * sends it to one of its servers.
 *
 *   may it be ours? -> parse -> the frontend -> guarded, or with flows to remember?
 *     | no               | odd     | none               | no             | yes
 *     |                  |         |          choose, tunnel, away    fullnat
 *     |                  |         +-> an answer to fullnat? a range of ports?
 *     |                  |                               | no
 *     |                  +-> the rare program            +-> dropped, if to a VIP
 *     +-> the kernel's, untouched
 *
 * Odd are fragments, IPv4 options, IPv6 extension headers, VLAN tags and other
 * protocols than TCP, UDP and SCTP. Untouched go packets whose TTL ends here,
 * too: the kernel answers those as any router does.
 *
 * What is common is in one body and calls nothing but the kernel; what is not
 * has functions, and frames, of its own.
 */
#include "addr.h"
#include "common.h"
#include "parse.h"

#include "balancer/choose.h"
#include "balancer/count.h"
#include "balancer/frontend.h"
#include "balancer/handover.h"
#include "balancer/leave.h"
#include "balancer/maps.h"
#include "balancer/send.h"
#include "balancer/stateful.h"
#include "balancer/tunnel.h"
#include "balancer/unserved.h"

/* Lengths that do not fit the frame's first buffer may fit the frame. */
static __noinline int is_malformed(struct xdp_md *ctx, bool v6)
{
	__u32 left = bpf_xdp_get_buff_len(ctx) - sizeof(struct ethhdr);
	struct packet p __attribute__((aligned(8)));
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	return !parse_eth(&c) || !parse_packet(&c, &p, left, v6) || p.malformed;
}

/* Any frontend, any packet that has ports. */
static __always_inline int serve_any(struct xdp_md *ctx, const struct packet *p, struct frontend *f,
				     bool v6)
{
	struct pick k = {};

	if (!p || !f) /* for the verifier */
		return XDP_PASS;
	if (p->malformed && is_malformed(ctx, v6))
		return drop(ctx, DROP_MALFORMED);
	if (p->ttl <= 1)
		return XDP_PASS;
	if (f->flags & FRONTEND_STATEFUL)
		return stateful(ctx, p, f, v6);
	choose(&k, f, p);
	return v6 ? send_v6(ctx, p, f, &k) : send_v4(ctx, p, f, &k);
}

__noinline int serve_any_v4(struct xdp_md *ctx, const struct packet *p, struct frontend *f)
{
	return serve_any(ctx, p, f, false);
}

__noinline int serve_any_v6(struct xdp_md *ctx, const struct packet *p, struct frontend *f)
{
	return serve_any(ctx, p, f, true);
}

/* The frontend of this very port is none: a range, the whole address, or an
 * answer of a server of fullnat.
 */
static __always_inline int serve_wide(struct xdp_md *ctx, const struct packet *p, bool v6)
{
	struct frontend *f;
	int verdict;

	if (!p) /* for the verifier */
		return XDP_PASS;
	if (is_own(&p->t.dst, v6)) {
		verdict = v6 ? nat_back_v6(ctx, p) : nat_back_v4(ctx, p);
		return verdict == NAT_NO_ANSWER ? XDP_PASS : verdict;
	}
	f = frontend_wide(p);
	if (!f)
		return XDP_PASS;
	if (f->method == METHOD_NONE)
		return v6 ? unserved_v6(ctx) : unserved_v4(ctx);
	return v6 ? serve_any_v6(ctx, p, f) : serve_any_v4(ctx, p, f);
}

__noinline int serve_wide_v4(struct xdp_md *ctx, const struct packet *p)
{
	return serve_wide(ctx, p, false);
}

__noinline int serve_wide_v6(struct xdp_md *ctx, const struct packet *p)
{
	return serve_wide(ctx, p, true);
}

/* The common case: a tunnel to a server of the packet's own family, the way to
 * which is known. All others go from the start, in serve_any.
 */
static __always_inline int serve(struct xdp_md *ctx, const struct packet *p, struct frontend *f,
				 bool v6)
{
	struct choice ch;
	struct pick k;
	int verdict;

	if (unlikely(p->malformed || p->ttl <= 1))
		goto any;
	if (unlikely(f->flags & (FRONTEND_STATEFUL | FRONTEND_GUARDED)))
		goto any;
	if (unlikely(f->method != METHOD_TUNNEL))
		goto any;
	choose(&k, f, p);
	if (unlikely(!choice_of(&ch, &k)))
		goto any;
	if (unlikely(addr_is_v4(&ch.server->addr) == v6 || !way_is_kept(ctx, &ch)))
		goto any;
	verdict = tunnel_on(ctx, p, &ch, way_kept(ctx, &ch), f->encapsulation == ENCAPSULATION_GUE,
			    v6, v6);
	if (likely(sent(verdict)))
		count(f->id, ch.cpu, p->len, k.new_flow);
	return verdict;
any: {
	struct packet copy = *p;

	return v6 ? serve_any_v6(ctx, &copy, f) : serve_any_v4(ctx, &copy, f);
}
}

/* Without its own body the packet is odd. */
static __always_inline int balance(struct xdp_md *ctx, struct cursor *c, bool v6)
{
	struct packet p __attribute__((aligned(8)));
	__u64 left = c->end - c->pos;
	struct frontend *f;

	asm volatile("" : "+r"(left)); /* no 32-bit arithmetic with pointers */
	if (!parse_packet(c, &p, left, v6))
		return TO_RARE;
	f = frontend_lookup(&p.t.dst, p.t.dport, p.t.proto);
	if (likely(f))
		return serve(ctx, &p, f, v6);
	struct packet copy = p;

	return v6 ? serve_wide_v6(ctx, &copy) : serve_wide_v4(ctx, &copy);
}

static __always_inline int balance_v4(struct xdp_md *ctx, struct cursor *c)
{
	struct iphdr *ip = c->pos;
	struct addr dst;

	if ((void *)(ip + 1) > c->end)
		return XDP_PASS;
	addr_from_v4(&dst, ip->daddr);
	if (!may_be_ours(&dst))
		return XDP_PASS;
	return balance(ctx, c, false);
}

static __always_inline int balance_v6(struct xdp_md *ctx, struct cursor *c)
{
	struct ipv6hdr *ip = c->pos;
	struct addr dst;

	if ((void *)(ip + 1) > c->end)
		return XDP_PASS;
	addr_copy(&dst, &ip->daddr);
	if (!may_be_ours(&dst))
		return XDP_PASS;
	return balance(ctx, c, true);
}

SEC("xdp.frags")
int balancer(struct xdp_md *ctx)
{
	struct ethhdr *eth;
	struct cursor c;
	int verdict;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	eth = parse_eth(&c);
	if (!eth || eth->h_dest[0] & 1)
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		verdict = balance_v4(ctx, &c);
	else if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		verdict = balance_v6(ctx, &c);
	else if (is_vlan(eth->h_proto))
		verdict = TO_RARE;
	else
		return XDP_PASS;
	if (likely(verdict >= 0))
		return verdict;
	bpf_tail_call(ctx, &steps, verdict == STATEFUL_ASK ? STEP_HANDOVER : STEP_RARE);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
