/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The program that protects frontends from floods of SYNs with forged sources. The
 * agent marks frontends under pressure (FRONTEND_SYN_GUARDED). Only packets to those
 * that may open a flow come here, and packets of connections that were opened here.
 *
 *   nat, fullnat    a SYN is answered by a SYN-ACK with a cookie. An ACK that returns
 *                   the cookie opens the flow (syn_proxy.h).
 *   direct return   a SYN from an unvalidated source is answered by a challenge, a
 *                   SYN-ACK that no client accepts. The sender answers with a RST that
 *                   repeats the challenge's number, is thereby validated, and sends
 *                   the SYN again, which passes (syn_source.h).
 *
 * Packets that pass continue in the slow_path program.
 */
#ifndef FAIRLEAD_BALANCER_SYN_H
#define FAIRLEAD_BALANCER_SYN_H

#include "syn_proxy.h"
#include "syn_source.h"
#include "packet_too_big.h"
#include "capture.h"

/* Not a verdict: the packet may pass. */
#define SYN_PASSES (-1003)

/* Answers a SYN with a cookie. */
__noinline int syn_send_cookie(struct xdp_md *ctx, struct syn_scratch *s, const struct frontend *f,
			       bool v6)
{
	struct syn_made *m;
	struct segment *g;

	if (!ctx || !s || !f)
		return XDP_ABORTED;
	if (is_martian(&s->p.t.src, v6))
		return drop(ctx, DROP_MARTIAN_SOURCE);
	segment_read(s);
	g = &s->in;
	m = syn_make(s, TCP_BYTE_SYN | TCP_BYTE_ACK);
	m->opens = true;
	m->seq = syn_cookie_make(&s->p.t, s->o.seq, &g->syn);
	m->ack = s->o.seq + 1;
	m->syn.mss = v6 ? syn_set.mss6 : syn_set.mss4;
	m->syn.sack = g->syn.sack;
	m->syn.scale = g->syn.scale == SYN_NO_SCALE ? SYN_NO_SCALE : SYN_OWN_SCALE;
	m->timestamps = g->timestamps;
	m->ts_value = bpf_ktime_get_coarse_ns() >> 20; /* about a millisecond */
	m->ts_echo = bpf_ntohl(g->ts_value);
	syn_count(f, SYN_COOKIE_SENT);
	trace_event(TRACE_SYN, SYN_COOKIE_SENT, 0);
	return syn_answer(ctx, s, v6);
}

/* Challenges the sender of a SYN to prove that it exists. */
static __always_inline int syn_send_challenge(struct xdp_md *ctx, struct syn_scratch *s,
					      const struct frontend *f, bool v6)
{
	struct syn_made *m = syn_make(s, TCP_BYTE_SYN | TCP_BYTE_ACK);

	m->ack = syn_challenge_make(&s->p.t, s->o.seq);
	m->seq = m->ack;
	syn_count(f, SYN_CHALLENGE_SENT);
	trace_event(TRACE_SYN, SYN_CHALLENGE_SENT, 0);
	return syn_answer(ctx, s, v6);
}

/* Sends a RST, as a listening socket does for an ACK of no connection (RFC 9293,
 * 3.10.7.2), with a rate limit.
 */
__noinline int syn_reject(struct xdp_md *ctx, struct syn_scratch *s, enum drop_reason why, bool v6)
{
	if (!ctx || !s)
		return XDP_ABORTED;
	drop_count(ctx, why);
	if (!(s->p.flags & TCP_CONTINUES) || s->p.flags & TCP_RESETS ||
	    is_martian(&s->p.t.src, v6) || !answer_allowed())
		return XDP_DROP;
	syn_make(s, TCP_BYTE_RST)->seq = s->o.ack;
	return syn_answer(ctx, s, v6);
}

/* Handles direct server return. */
__noinline int syn_gate(struct xdp_md *ctx, struct syn_scratch *s, const struct frontend *f,
			bool v6)
{
	if (!ctx || !s || !f)
		return XDP_ABORTED;
	if (s->p.flags & TCP_OPENS) {
		if (syn_source_known(&s->p.t.src, s->o.now)) {
			syn_count(f, SYN_ADMITTED);
			trace_event(TRACE_SYN, SYN_ADMITTED, 0);
			return SYN_PASSES;
		}
		if (is_martian(&s->p.t.src, v6))
			return drop(ctx, DROP_MARTIAN_SOURCE);
		return syn_send_challenge(ctx, s, f, v6);
	}
	if (!syn_concerns(&s->p) || !syn_challenge_valid(&s->p.t, s->o.seq))
		return SYN_PASSES;
	syn_source_remember(&s->p.t.src, s->o.now);
	syn_count(f, SYN_CHALLENGE_ANSWERED);
	trace_event(TRACE_SYN, SYN_CHALLENGE_ANSWERED, 0);
	return XDP_DROP; /* it has served its purpose */
}

/* Opens the flow of an ACK with a valid cookie. Returns 0 or FAILED. The flow may
 * already exist.
 */
__noinline int syn_open(struct syn_scratch *s, struct frontend *f, bool v6)
{
	struct opening *o;
	int result;

	if (!s || !f)
		return FAILED(DROP_NO_BACKEND);
	o = &s->o;
	o->fresh = true;
	o->proxied = true;
	result = stateful_refuses(&s->p, f, v6);
	if (result == 0)
		result = stateful_choose(&s->p, f, o, false);
	if (result < 0)
		return result;
	result = stateful_open(&s->p, f, o);
	if (result == FLOW_BUSY)
		result = stateful_open(&s->p, f, o);
	if (result == FLOW_BUSY)
		return FAILED(DROP_FLOW_BUSY);
	if (result == FLOW_FULL)
		return FAILED(DROP_FLOWS_FULL);
	if (result < 0 || !o->claimed)
		return result;
	if (!syn_flow_make(s)) {
		stateful_drop(o);
		return FAILED(DROP_FLOWS_FULL);
	}
	return stateful_open_nat(&s->p, f, o);
}

/* Reports whether an ACK returns a valid cookie: the handshake's own ACK or, if that
 * was lost, a zero-window probe, with the previous sequence number (RFC 9293,
 * 3.8.6.1).
 */
static __always_inline bool syn_gives_cookie(struct syn_scratch *s)
{
	struct opening *o = &s->o;

	if (!(s->p.flags & TCP_CONTINUES) || s->p.flags & TCP_FINISHES)
		return false;
	if (syn_cookie_valid(&s->p.t, o->seq - 1, o->ack - 1, &s->client))
		return true;
	if (!syn_cookie_valid(&s->p.t, o->seq, o->ack - 1, &s->client))
		return false;
	o->seq++;
	return true;
}

/* Handles an ACK of no known flow. */
__noinline int syn_check_cookie(struct xdp_md *ctx, struct syn_scratch *s, struct frontend *f,
				bool v6)
{
	int failed;

	if (!ctx || !s || !f)
		return XDP_ABORTED;
	if (!syn_gives_cookie(s)) {
		if (stateful_asks(&s->p))
			return STATEFUL_ASK;
		if (!(f->flags & FRONTEND_SYN_GUARDED))
			return SYN_PASSES; /* no longer guarded */
		syn_count(f, SYN_COOKIE_REJECTED);
		trace_event(TRACE_SYN, SYN_COOKIE_REJECTED, 0);
		return syn_reject(ctx, s, DROP_SYN_COOKIE, v6);
	}
	segment_read(s);
	failed = syn_open(s, f, v6);
	if (failed < 0)
		return syn_reject(ctx, s, FAILED_WHY(failed), v6);
	syn_count(f, SYN_COOKIE_ACCEPTED);
	trace_event(TRACE_SYN, SYN_COOKIE_ACCEPTED, flow_server(s->o.word));
	if (f->affinity)
		affinity_note(&s->p, f, s->o.word, s->o.index, s->o.now);
	return syn_open_server(ctx, s, f, v6);
}

/* nat and fullnat: handles a packet of a flow that was opened here, or returns
 * SYN_PASSES.
 */
static __always_inline int syn_known(struct xdp_md *ctx, struct syn_scratch *s,
				     const struct frontend *f, bool v6)
{
	struct flow_secret *secret = flow_secret_get();
	const struct server *server;
	struct flow_ref r;

	if (!secret)
		return SYN_PASSES;
	s->o.tag = flow_tag(secret, &s->p.t, v6);
	if (!flow_ref_init(&r, s->o.tag) || !flow_find(&r))
		return SYN_PASSES;
	if (stateful_lives(&r, &server, &s->p, s->o.now) && stateful_is_proxied(&r, &s->p, f, v6))
		return syn_forth(ctx, s, f, &r, v6);
	s->o.word = r.word; /* it is over: the new flow reuses its entry */
	return SYN_PASSES;
}

__noinline int syn_known_v4(struct xdp_md *ctx, struct syn_scratch *s, const struct frontend *f)
{
	return ctx && s && f ? syn_known(ctx, s, f, false) : XDP_ABORTED;
}

__noinline int syn_known_v6(struct xdp_md *ctx, struct syn_scratch *s, const struct frontend *f)
{
	return ctx && s && f ? syn_known(ctx, s, f, true) : XDP_ABORTED;
}

/* Handles nat and fullnat. Not within a VLAN, where the next hop to the backend is
 * unknown.
 */
static __always_inline int syn_cookies(struct xdp_md *ctx, struct syn_scratch *s,
				       struct frontend *f, bool v6)
{
	int verdict;

	if (syn_tagged(s))
		return SYN_PASSES;
	verdict = v6 ? syn_known_v6(ctx, s, f) : syn_known_v4(ctx, s, f);
	if (verdict != SYN_PASSES)
		return verdict;
	if (!(s->p.flags & TCP_OPENS))
		return syn_check_cookie(ctx, s, f, v6);
	return f->flags & FRONTEND_SYN_GUARDED ? syn_send_cookie(ctx, s, f, v6) : SYN_PASSES;
}

static __always_inline int syn_serve_back(struct xdp_md *ctx, struct syn_scratch *s, bool v6)
{
	if (syn_tagged(s))
		return NAT_NO_ANSWER;
	return v6 ? syn_back_v6(ctx, s) : syn_back_v4(ctx, s);
}

/* Serves a packet found by syn_find. */
static __always_inline int syn_serve(struct xdp_md *ctx, struct syn_scratch *s, bool v6)
{
	struct frontend *f;
	int verdict;

	s->l4 = s->l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	f = frontend_lookup(&s->p.t.dst, s->p.t.dport, s->p.t.proto);
	if (!f) {
		verdict = syn_serve_back(ctx, s, v6);
		if (verdict != NAT_NO_ANSWER)
			return verdict;
		f = frontend_wide(&s->p);
	}
	if (!f)
		return XDP_PASS;
	if (f->method == METHOD_NONE)
		return SYN_PASSES;
	trace_frontend(f);
	if (s->p.malformed || !segment_load(ctx, &s->in, s->l4))
		return drop(ctx, DROP_MALFORMED);
	__builtin_memset(&s->o, 0, sizeof(s->o));
	s->o.now = flow_now();
	s->o.seq = bpf_ntohl(s->in.tcp.seq);
	s->o.ack = bpf_ntohl(s->in.tcp.ack_seq);
	s->o.payload = s->l4 + s->in.tcp.doff * 4u < s->l3 + s->p.len;
	return is_nat(f) ? syn_cookies(ctx, s, f, v6) : syn_gate(ctx, s, f, v6);
}

static __always_inline int syn_frame(struct xdp_md *ctx, struct syn_scratch *s)
{
	bool v6;

	if (!syn_find(ctx, s, &v6) || s->p.t.proto != IPPROTO_TCP)
		return drop(ctx, DROP_SYN_ODD);
	return syn_serve(ctx, s, v6);
}

SEC("xdp.frags")
int syn(struct xdp_md *ctx)
{
	struct syn_scratch *s = syn_scratch_get();
	int verdict = s ? syn_frame(ctx, s) : XDP_PASS;

	if (s && verdict < 0) {
		enum step step = verdict == STATEFUL_ASK ? STEP_HANDOVER : STEP_SLOW_PATH;

		s->admitted = verdict == SYN_PASSES;
		trace_event(TRACE_ELSEWHERE, step, 0);
		bpf_tail_call(ctx, &steps, step);
		verdict = drop(ctx, DROP_NO_BACKEND);
	}
	if (watching)
		watch_after(ctx, verdict);
	return verdict;
}

#endif
