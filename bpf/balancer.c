/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The load balancer: an XDP program that accepts packets addressed to a frontend
 * and forwards them to one of its backends.
 *
 *   may it be ours? -> parse -> frontend lookup -> fast path, or known flow?
 *     | no               | slow    | none            | yes          | no
 *     |                  | path    |         backend's mode,     serve_any: policy.h,
 *     |                  |         |             transmit        stateful.h, send.h
 *     |                  |         +-> reply for nat or fullnat? port range?
 *     |                  |                               | no
 *     |                  +-> slow path program           +-> drop if to a VIP
 *     +-> kernel, unmodified
 *
 * Packets that would open a connection to a frontend under SYN pressure go to the
 * syn program.
 *
 * Only frames for this host's MAC address are ours (mac.h). Fragments, IPv4
 * options, IPv6 extension headers, VLAN tags and protocols other than TCP, UDP and
 * SCTP take the slow path. Packets whose TTL expires here stay unmodified: the
 * kernel answers them as any router does.
 *
 * The fast path is a single function body that calls only kernel helpers.
 * Everything else has separate functions with their own stack frames.
 */
#include "addr.h"
#include "common.h"
#include "parse.h"

#include "balancer/choose.h"
#include "balancer/count.h"
#include "balancer/frontend.h"
#include "balancer/policy.h"
#include "balancer/handover.h"
#include "balancer/egress.h"
#include "balancer/mac.h"
#include "balancer/maps.h"
#include "balancer/slow_path.h"
#include "balancer/send.h"
#include "balancer/stateful.h"
#include "balancer/syn.h"
#include "balancer/tunnel.h"
#include "balancer/no_frontend.h"
#include "balancer/capture.h"

/* Parses the packet again from the start. Lengths that exceed the frame's first
 * buffer may still fit the whole frame.
 */
static __always_inline bool read_again(struct xdp_md *ctx, struct packet *p, bool v6)
{
	__u32 left = bpf_xdp_get_buff_len(ctx) - sizeof(struct ethhdr);
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	return parse_eth(&c) && parse_packet(&c, p, left, v6);
}

/* Reports whether it may be a reply to nat or fullnat. */
static __always_inline bool may_be_answer(const struct packet *p, bool v6)
{
	return is_own(&p->t.dst, v6) || (set.nat && may_be_nat_server(&p->t.src));
}

/* Reports whether it may belong to a connection with translated sequence numbers.
 */
static __always_inline bool may_be_proxied(const struct packet *p, bool v6)
{
	return syn_set.active && p->t.proto == IPPROTO_TCP && may_be_answer(p, v6);
}

/* Handles any packet with ports, for any frontend: f if the exact port matched,
 * else a frontend still to be found.
 */
static __always_inline int serve_any(struct xdp_md *ctx, struct frontend *f, bool v6)
{
	struct packet p __attribute__((aligned(8)));
	struct pick k;

	if (!read_again(ctx, &p, v6))
		return TO_SLOW_PATH; /* for the verifier */
	if (!f)
		f = frontend_wide(&p);
	if (!f)
		return may_be_proxied(&p, v6) ? TO_SYN : XDP_PASS;
	if (f->method == METHOD_NONE) {
		trace_event(TRACE_UNSERVED, 0, 0);
		return v6 ? unserved_v6(ctx) : unserved_v4(ctx);
	}
	trace_frontend(f);
	if (p.malformed)
		return drop(ctx, DROP_MALFORMED);
	if (p.ttl <= 1)
		return XDP_PASS;
	if (f->flags & FRONTEND_GUARDED && guard(ctx, &p, f))
		return XDP_DROP;
	if (f->flags & FRONTEND_STATEFUL)
		return stateful(ctx, &p, f, v6);
	if (f->flags & FRONTEND_SYN_GUARDED && p.t.proto == IPPROTO_TCP && syn_concerns(&p))
		return TO_SYN;
	choose_apart(&k, f, &p);
	trace_pick(f, &k);
	return v6 ? send_v6(ctx, &p, f, &k) : send_v4(ctx, &p, f, &k);
}

__noinline int serve_any_v4(struct xdp_md *ctx, struct frontend *f)
{
	return serve_any(ctx, f, false);
}

__noinline int serve_any_v6(struct xdp_md *ctx, struct frontend *f)
{
	return serve_any(ctx, f, true);
}

/* No verdict: the fast path does not handle this packet. */
#define NOT_COMMON (-3)

/* Chooses the backend of the packet's slot. */
static __always_inline bool choose_by_slot(struct choice *ch, const struct packet *p,
					   const struct frontend *f)
{
	struct pick k;

	choose(&k, f, p);
	return choice_of(ch, &k);
}

/* Sends to a backend of the packet's own family through a tunnel, if its next hop
 * is cached.
 */
static __always_inline int tunnel_common(struct xdp_md *ctx, const struct packet *p,
					 const struct frontend *f, struct choice *ch, bool v6)
{
	if (unlikely(addr_is_v4_aligned(&ch->server->addr) == v6 || !way_is_near(ctx, ch)) ||
	    auth_policy)
		return NOT_COMMON;
	return tunnel_on(ctx, p->len, p->tos, ch, way_of(ctx, ch->hop),
			 f->encapsulation == ENCAPSULATION_GUE, v6, v6);
}

/* The fast path: tunnels, and packets of known flows. All others start over in
 * serve_any.
 */
static __always_inline int serve_common(struct xdp_md *ctx, const struct packet *p,
					const struct frontend *f, const struct recent *n, bool v6)
{
	__be16 own_port = 0;
	bool nat = false;
	struct choice ch;
	int verdict;

	if (unlikely(p->malformed || p->ttl <= 1))
		return NOT_COMMON;
	if (unlikely(f->flags & (FRONTEND_GUARDED | FRONTEND_SYN_GUARDED)) || tracing) {
		if (f->flags & FRONTEND_GUARDED || tracing || syn_concerns(p))
			return NOT_COMMON;
	}
	if (f->flags & FRONTEND_STATEFUL) {
		if (unlikely(!stateful_continues(&ch, &own_port, p, f, n, v6)))
			return NOT_COMMON;
		nat = is_nat(f);
	} else if (unlikely(f->method != METHOD_TUNNEL || !choose_by_slot(&ch, p, f))) {
		return NOT_COMMON;
	}
	if (nat)
		verdict = nat_send(ctx, p, &ch, own_port, v6);
	else
		verdict = tunnel_common(ctx, p, f, &ch, v6);
	if (likely(sent(verdict)))
		count(f->id, ch.cpu, p->len, opens(p));
	return verdict;
}

/* No frontend has this exact port: a reply, or not for the fast path. */
static __always_inline int serve_answer(struct xdp_md *ctx, const struct packet *p, bool v6)
{
	int verdict;

	if (!may_be_answer(p, v6))
		return NOT_COMMON;
	trace_event(TRACE_OWN, 0, 0);
	verdict = nat_back(ctx, p, v6);
	return verdict != NAT_NO_ANSWER ? verdict : NOT_COMMON;
}

/* A packet that parse_packet cannot parse takes the slow path. */
static __always_inline int balance(struct xdp_md *ctx, struct cursor *c, struct frontend **f,
				   bool v6)
{
	struct packet p __attribute__((aligned(8)));
	__u64 left = c->end - c->pos;
	struct recent n;

	asm volatile("" : "+r"(left)); /* no 32-bit arithmetic with pointers */
	if (!parse_packet(c, &p, left, v6))
		return TO_SLOW_PATH;
	trace_event(TRACE_PACKET, p.t.proto | p.flags << 8 | is_malformed(ctx, &p) << 16, p.len);
	recent_begin(&n, &p, v6);
	*f = frontend_lookup(&p.t.dst, p.t.dport, p.t.proto);
	return likely(*f) ? serve_common(ctx, &p, *f, &n, v6) : serve_answer(ctx, &p, v6);
}

/* Packets to no address of ours may still be for nat: a reply, or a router's ICMP
 * error about a packet to a backend, which quotes a packet that no client sent. An
 * error may follow extension headers.
 */
static __always_inline bool is_nat_way_back(const struct addr *src, __u8 proto)
{
	return unlikely(set.nat) && (!has_ports(proto) || may_be_nat_server(src));
}

/* Not inlined: its stack frame is free again when the other steps need one. */
static __noinline int balance_v4(struct xdp_md *ctx, struct frontend **f)
{
	struct addr dst, src;
	struct iphdr *ip;
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	c.pos += sizeof(struct ethhdr);
	ip = c.pos;
	if ((void *)(ip + 1) > c.end)
		return XDP_PASS;
	addr_from_v4(&dst, ip->daddr);
	addr_from_v4(&src, ip->saddr);
	if (!may_be_ours(&dst)) {
		trace_event(TRACE_NOT_OURS, 0, 0);
		if (!is_nat_way_back(&src, ip->protocol))
			return XDP_PASS;
	}
	return balance(ctx, &c, f, false);
}

static __noinline int balance_v6(struct xdp_md *ctx, struct frontend **f)
{
	struct addr dst, src;
	struct ipv6hdr *ip;
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	c.pos += sizeof(struct ethhdr);
	ip = c.pos;
	if ((void *)(ip + 1) > c.end)
		return XDP_PASS;
	addr_copy(&dst, &ip->daddr);
	addr_copy(&src, &ip->saddr);
	if (unlikely(addrs_are_mapped(&src, &dst)))
		return XDP_PASS;
	if (!may_be_ours(&dst)) {
		trace_event(TRACE_NOT_OURS, 0, 0);
		if (!is_nat_way_back(&src, ip->nexthdr))
			return XDP_PASS;
	}
	return balance(ctx, &c, f, true);
}

static __always_inline int balance_any(struct xdp_md *ctx, __be16 proto)
{
	struct frontend *f = NULL;
	int verdict;

	if (proto == bpf_htons(ETH_P_IP)) {
		verdict = balance_v4(ctx, &f);
		return likely(verdict != NOT_COMMON) ? verdict : serve_any_v4(ctx, f);
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		verdict = balance_v6(ctx, &f);
		return likely(verdict != NOT_COMMON) ? verdict : serve_any_v6(ctx, f);
	}
	return is_vlan(proto) ? TO_SLOW_PATH : XDP_PASS;
}

static __always_inline int balance_frame(struct xdp_md *ctx)
{
	struct ethhdr *eth;
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	eth = parse_eth(&c);
	if (!eth || !is_for_us(ctx, eth))
		return XDP_PASS;
	return balance_any(ctx, eth->h_proto);
}

/* The step that continues a packet without a verdict. */
static __always_inline enum step step_of(int verdict)
{
	if (verdict == STATEFUL_ASK)
		return STEP_HANDOVER;
	return verdict == TO_SYN ? STEP_SYN : STEP_SLOW_PATH;
}

/* The step's program is not loaded. The packet must not loop. */
static __noinline int without_step(struct xdp_md *ctx, int verdict)
{
	struct ethhdr *eth;
	struct cursor c;

	if (verdict == TO_SLOW_PATH_TOO_BIG)
		return drop(ctx, DROP_TOO_BIG);
	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	eth = parse_eth(&c);
	if (!eth || is_vlan(eth->h_proto))
		return XDP_PASS;
	return eth->h_proto == bpf_htons(ETH_P_IP) ? unserved_v4(ctx) : unserved_v6(ctx);
}

SEC("xdp.frags")
int balancer(struct xdp_md *ctx)
{
	int verdict;

	if (watching)
		watch_before(ctx);
	verdict = balance_frame(ctx);
	if (unlikely(verdict < 0)) {
		trace_event(TRACE_ELSEWHERE, step_of(verdict), 0);
		bpf_tail_call(ctx, &steps, step_of(verdict));
		verdict = without_step(ctx, verdict);
	}
	if (watching)
		watch_after(ctx, verdict);
	return verdict;
}

char _license[] SEC("license") = "Dual BSD/GPL";
