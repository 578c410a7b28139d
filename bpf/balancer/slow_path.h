/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The slow path program: ICMP, fragments, IPv4 options, IPv6 extension headers, VLAN
 * tags and packets that exceed the path MTU. It parses the frame again. Its only link
 * to the fast path is a tail call.
 *
 *   Ethernet, VLAN -> IP, options -> for us? -> ICMP -> echo, or an error's flow
 *                                      |                          |
 *                                      +-> ports or fragment -----+-> choose -> send
 */
#ifndef FAIRLEAD_BALANCER_SLOW_PATH_H
#define FAIRLEAD_BALANCER_SLOW_PATH_H

#include "fragment.h"
#include "frontend.h"
#include "policy.h"
#include "icmp.h"
#include "options.h"
#include "slow_path_handover.h"
#include "slow_path_nat.h"
#include "slow_path_send.h"
#include "stateful.h"
#include "syn_packet.h"
#include "no_frontend.h"
#include "vlan.h"
#include "capture.h"

/* Returns PACKET_ADMITTED if the syn program has let the packet pass, else 0. */
static __always_inline __u8 slow_admitted(void)
{
	struct syn_scratch *s = syn_scratch_get();
	bool admitted;

	if (!s)
		return 0;
	admitted = s->admitted;
	s->admitted = false;
	return admitted ? PACKET_ADMITTED : 0;
}

/* Fills in everything about the packet except its ports. */
static __always_inline void slow_describe(struct xdp_md *ctx, struct rare *r)
{
	struct packet *p = &r->p;
	__u8 type = 0;

	__builtin_memset(p, 0, sizeof(*p));
	icmp_own(r, &p->t.src, &p->t.dst);
	r->sender = p->t.src;
	r->vip = p->t.dst;
	r->is_vip = is_vip(&r->vip);
	p->t.proto = r->own.proto;
	p->len = r->own.end - r->own.l3;
	if (r->v6) {
		p->ttl = r->own.ip.v6.hop_limit;
		p->tos = r->own.ip.v6.priority << 4 | r->own.ip.v6.flow_lbl[0] >> 4;
	} else {
		p->ttl = r->own.ip.v4.ttl;
		p->tos = r->own.ip.v4.tos;
	}
	if (is_icmp(&r->own, r->v6) && !r->own.offset)
		bpf_xdp_load_bytes(ctx, r->own.l4, &type, sizeof(type));
	r->icmp_type = type;
}

/* Reports whether it may be a reply to nat or fullnat. */
static __always_inline bool slow_may_be_answer(const struct rare *r)
{
	return is_own(&r->p.t.dst, r->v6) || (set.nat && may_be_nat_server(&r->p.t.src));
}

/* Reports whether it is for a VIP, a reply, or a router's ICMP error about a packet
 * to a nat backend, which goes to the client.
 */
static __always_inline bool slow_concerns(const struct rare *r)
{
	if (r->is_vip || slow_may_be_answer(r))
		return true;
	return set.nat && is_icmp(&r->own, r->v6) && icmp_is_error(r->icmp_type, r->v6);
}

/* Reads the frame. Returns false if it is no valid IP packet. */
__noinline int slow_read(struct xdp_md *ctx, struct rare *r)
{
	if (!r)
		return false;
	__be16 proto = vlan_read(ctx, r);

	r->ingress = ctx->ingress_ifindex;
	r->frame = bpf_xdp_get_buff_len(ctx);
	r->is_error = false;
	r->answered = false;
	r->seq = 0;
	r->ack = 0;
	r->payload = 0;
	r->is_answer = false;
	r->proxied = false;
	r->no_port = false;
	r->shift = 0;
	r->handed = slow_handed();
	r->admitted = slow_admitted() | (r->handed & PACKET_ADMITTED);
	r->handed &= ~PACKET_ADMITTED;
	r->v6 = proto == bpf_htons(ETH_P_IPV6);
	if (!r->v6 && proto != bpf_htons(ETH_P_IP))
		return false;
	if (!spot_read(ctx, &r->own, r->frame, false, r->v6))
		return false;
	if (!r->v6)
		options_read_v4(ctx, r);
	slow_describe(ctx, r);
	return !r->v6 || !addrs_are_mapped(&r->p.t.src, &r->p.t.dst);
}

/* Drops a packet to a VIP. If the VIP is also an address of this host, the kernel
 * decides.
 */
__noinline int slow_refuse(struct xdp_md *ctx, struct rare *r, enum drop_reason why)
{
	if (!r)
		return XDP_ABORTED;
	if (!r->is_vip || stays_here(ctx, &r->fib, &r->p.t.src, &r->vip, r->v6))
		return XDP_PASS;
	return drop(ctx, why);
}

/* Reads the ports of a whole packet or a first fragment. */
__noinline int slow_ports(struct xdp_md *ctx, struct rare *r)
{
	if (!r)
		return XDP_ABORTED;
	__u32 room = r->own.end - r->own.l4;
	struct tcphdr tcp;
	struct udphdr udp;
	struct sctp_start {
		struct sctphdr header;
		struct sctp_chunk chunk;
	} sctp;

	if (r->own.end < r->own.l4 + l4_least(r->p.t.proto))
		return slow_refuse(ctx, r,
				   is_fragment(&r->own) ? DROP_TINY_FRAGMENT : DROP_MALFORMED);
	switch (r->p.t.proto) {
	case IPPROTO_TCP:
		if (bpf_xdp_load_bytes(ctx, r->own.l4, &tcp, sizeof(tcp)) || tcp.doff < 5 ||
		    (tcp.doff * 4 > room && !is_fragment(&r->own)))
			return slow_refuse(ctx, r, DROP_MALFORMED);
		r->p.t.sport = tcp.source;
		r->p.t.dport = tcp.dest;
		r->p.flags = tcp_flags_of(&tcp);
		r->seq = bpf_ntohl(tcp.seq);
		r->ack = bpf_ntohl(tcp.ack_seq);
		r->payload = room > tcp.doff * 4u;
		return RARE_GO_ON;
	case IPPROTO_UDP:
		if (bpf_xdp_load_bytes(ctx, r->own.l4, &udp, sizeof(udp)) ||
		    bpf_ntohs(udp.len) < sizeof(udp) ||
		    (bpf_ntohs(udp.len) > room && !is_fragment(&r->own)))
			return slow_refuse(ctx, r, DROP_MALFORMED);
		r->p.t.sport = udp.source;
		r->p.t.dport = udp.dest;
		return RARE_GO_ON;
	}
	if (room < sizeof(sctp) || bpf_xdp_load_bytes(ctx, r->own.l4, &sctp, sizeof(sctp)))
		return slow_refuse(ctx, r, DROP_MALFORMED);
	r->p.t.sport = sctp.header.source;
	r->p.t.dport = sctp.header.dest;
	r->p.flags = sctp_flags_of(sctp.chunk.type);
	r->seq = bpf_ntohl(sctp.header.tag);
	r->ack = r->seq;
	return RARE_GO_ON;
}

/* Handles a packet to a VIP but to none of its frontends. */
static __always_inline int slow_unserved(struct xdp_md *ctx, struct rare *r)
{
	return r->p.ttl <= 1 ? XDP_PASS : slow_refuse(ctx, r, DROP_NO_FRONTEND);
}

static __always_inline int slow_send(struct xdp_md *ctx, struct rare *r, const struct frontend *f)
{
	switch (f->method) {
	case METHOD_TUNNEL:
		return slow_tunnel(ctx, r, f);
	case METHOD_DIRECT_NAT:
	case METHOD_DR:
		return slow_direct(ctx, r, f);
	default: /* modes that rewrite both directions track flows */
		return drop(ctx, DROP_NO_BACKEND);
	}
}

/* An error about a packet of no known flow. */
#define RARE_IS_NOBODYS 2

/* Chooses a backend for an unknown flow, like stateful_unknown. An error opens no
 * flow.
 */
static __always_inline int slow_unknown(struct rare *r, struct frontend *f, struct opening *o)
{
	if (!r->is_error)
		return stateful_unknown(&r->p, f, o, !r->tagged, r->v6);
	return !o->server && !r->tagged && stateful_asks(&r->p) ? STATEFUL_ASK : RARE_IS_NOBODYS;
}

/* Handles packets of a flow with translated sequence numbers. An error, which quotes
 * the numbers, continues here, as does a packet that exceeded the path MTU. All
 * others are for the syn program.
 */
__noinline int slow_proxied(struct xdp_md *ctx, struct rare *r, const struct opening *o)
{
	struct syn_flow *flow;
	struct choice ch;
	enum way way;

	if (!ctx || !r || !o)
		return XDP_ABORTED;
	if (r->is_error) {
		flow = syn_flow_of(o->index, o->tag);
		r->shift = flow ? -flow->shift : 0;
		return RARE_GO_ON;
	}
	r->pick.id = flow_server(o->word);
	r->pick.chain = 0;
	r->pick.hash = o->tag >> 32;
	if (r->admitted || r->tagged || !choice_of(&ch, &r->pick))
		return drop(ctx, DROP_SYN_ODD);
	r->more = 0;
	way = slow_way(ctx, r, &ch, r->p.len);
	return way_leads_nowhere(way) ? slow_nowhere(ctx, r, way) : TO_SYN;
}

/* Decides where a packet of no known flow goes: RARE_GO_ON to the backend in o, or a
 * verdict.
 */
static __always_inline int slow_open(struct xdp_md *ctx, struct rare *r, struct frontend *f,
				     struct opening *o)
{
	int failed;

	if (o->proxied)
		return slow_proxied(ctx, r, o);
	failed = slow_unknown(r, f, o);
	if (failed == STATEFUL_ASK)
		return slow_ask(ctx, r);
	if (failed == TO_SYN)
		return TO_SYN;
	r->no_port = failed == FAILED(DROP_NO_PORT);
	if (failed < 0)
		return drop(ctx, FAILED_WHY(failed));
	if (failed == RARE_IS_NOBODYS)
		return slow_refuse(ctx, r, DROP_NO_FRONTEND);
	return RARE_GO_ON;
}

/* Sends to the backend of a tracked flow, known or new. */
__noinline int slow_stateful(struct xdp_md *ctx, struct rare *r, struct frontend *f)
{
	struct opening o __attribute__((aligned(8))) = {.now = flow_now()};
	int verdict;

	if (!r || !f)
		return XDP_ABORTED;
	o.seq = r->seq;
	o.ack = r->ack;
	o.payload = r->payload;
	r->p.flags |= r->handed | r->admitted;
	if (!(r->v6 ? stateful_find_v6(&r->p, f, &o) : stateful_find_v4(&r->p, f, &o))) {
		verdict = slow_open(ctx, r, f, &o);
		if (verdict != RARE_GO_ON)
			return verdict;
	}
	if (f->affinity && o.remembered && (o.fresh || flow_state(o.word) != o.state))
		affinity_note(&r->p, f, o.word, o.index, o.now);
	r->pick.id = flow_server(o.word);
	r->pick.chain = 0;
	r->pick.hash = o.tag >> 32; /* as in stateful.h */
	r->pick.new_flow = o.fresh;
	return is_nat(f) ? slow_nat(ctx, r, f, o.index, o.tag) : slow_send(ctx, r, f);
}

/* The flow is identified: forwards to its frontend's backend, or back to its client. */
static __noinline int slow_serve(struct xdp_md *ctx, struct rare *r)
{
	struct tuple *t = &r->p.t;
	struct frontend *f = frontend_lookup(&t->dst, t->dport, t->proto);
	int verdict;

	if (!f && slow_may_be_answer(r)) {
		verdict = slow_answer(ctx, r);
		if (verdict != NAT_NO_ANSWER)
			return verdict;
	}
	if (!f)
		f = frontend_wide(&r->p);
	if (!f || f->method == METHOD_NONE)
		return slow_unserved(ctx, r);
	trace_frontend(f);
	if (r->p.ttl <= 1)
		return XDP_PASS;
	if (f->flags & FRONTEND_GUARDED && !r->is_error && !r->admitted &&
	    guard_handed(ctx, &r->p, f, r->handed))
		return XDP_DROP;
	if (f->flags & FRONTEND_STATEFUL)
		return slow_stateful(ctx, r, f);
	if (f->flags & FRONTEND_SYN_GUARDED && r->p.t.proto == IPPROTO_TCP && !r->is_error &&
	    !r->admitted && syn_concerns(&r->p))
		return TO_SYN;
	choose_apart(&r->pick, f, &r->p);
	trace_pick(f, &r->pick);
	if (r->own.offset)
		r->pick.new_flow = 0;
	return slow_send(ctx, r, f);
}

/* An error belongs to the flow of the packet it quotes, if that packet's source is
 * the error's destination.
 */
static __always_inline int slow_error(struct xdp_md *ctx, struct rare *r)
{
	if (icmp_quoted(ctx, r) || !addr_equal(&r->p.t.dst, &r->vip))
		return slow_unserved(ctx, r);
	r->is_error = true;
	return RARE_GO_ON;
}

static __noinline int slow_icmp(struct xdp_md *ctx, struct rare *r)
{
	if (r->own.end < r->own.l4 + ICMP_HEADER && !r->own.offset)
		return slow_refuse(ctx, r, DROP_MALFORMED);
	if (icmp_is_error(r->icmp_type, r->v6) && !is_fragment(&r->own))
		return slow_error(ctx, r);
	if (!r->is_vip || (!r->own.offset && !icmp_is_echo(r->icmp_type, r->v6)))
		return slow_unserved(ctx, r);
	if (is_martian(&r->p.t.src, r->v6))
		return drop(ctx, DROP_MARTIAN_SOURCE);
	if (stays_here(ctx, &r->fib, &r->p.t.src, &r->vip, r->v6))
		return XDP_PASS; /* the kernel answers for its own addresses */
	return echo(ctx, r);
}

/* Finds out which flow the packet belongs to. */
static __always_inline int slow_flow(struct xdp_md *ctx, struct rare *r)
{
	int verdict;

	if (is_icmp(&r->own, r->v6))
		return slow_icmp(ctx, r);
	if (r->own.offset)
		return fragment_recall(ctx, r);
	if (!has_ports(r->own.proto))
		return slow_unserved(ctx, r);
	verdict = slow_ports(ctx, r);
	if (verdict == RARE_GO_ON && r->own.more)
		trace_event(TRACE_FRAGMENT, TRACE_FRAGMENT_FIRST, 0);
	return verdict;
}

/* Serves a packet whose flow is identified. */
static __always_inline int slow_identified(struct xdp_md *ctx, struct rare *r)
{
	int verdict = slow_serve(ctx, r);

	if (!r->own.more || r->own.offset)
		return verdict;
	if (r->no_port)
		fragment_reject(r);
	else
		fragment_remember(r);
	return verdict;
}

static __always_inline int slow_frame(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct rare *r = bpf_map_lookup_elem(&slow_scratch, &zero);
	int verdict;

	if (!r)
		return XDP_PASS;
	if (!slow_read(ctx, r)) /* once decapsulated, it is no longer for the kernel */
		return r->handed ? drop(ctx, DROP_MALFORMED) : XDP_PASS;
	if (is_own(&r->vip, r->v6) &&
	    (r->own.proto == IPPROTO_IPIP || r->own.proto == IPPROTO_IPV6)) {
		if (!r->own.broken && !is_fragment(&r->own)) /* the kernel reassembles */
			bpf_tail_call(ctx, &steps, STEP_HANDOVER);
		return XDP_PASS; /* loaded if a load balancer may drain */
	}
	if (icmp_is_discovery(r) || !slow_concerns(r))
		return XDP_PASS;
	if (r->own.source_route)
		return slow_refuse(ctx, r, DROP_SOURCE_ROUTE);
	if (r->own.broken || (is_fragment(&r->own) && fragment_is_broken(&r->own)))
		return slow_refuse(ctx, r, DROP_MALFORMED);
	verdict = slow_flow(ctx, r);
	return verdict == RARE_GO_ON ? slow_identified(ctx, r) : verdict;
}

SEC("xdp.frags")
int slow_path(struct xdp_md *ctx)
{
	int verdict = slow_frame(ctx);

	if (verdict == TO_SYN) {
		trace_event(TRACE_ELSEWHERE, STEP_SYN, 0);
		bpf_tail_call(ctx, &steps, STEP_SYN);
		verdict = drop(ctx, DROP_SYN_ODD);
	}
	if (watching)
		watch_after(ctx, verdict);
	return verdict;
}

#endif
