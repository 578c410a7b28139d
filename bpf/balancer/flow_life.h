/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How packets change the state of a flow. Anyone who knows addresses and ports can
 * forge any segment of the client, so no client segment makes the load balancer
 * forget a flow that may continue (RFC 5961, and Linux nf_conntrack_proto_tcp.c):
 *
 *   nat, fullnat    the backend's reply decides: its own FIN or RST, or a SYN-ACK
 *                   to a SYN
 *   direct return   the load balancer sees no replies. A FIN or RST counts if it has
 *                   the connection's numbers, which only its ends know. Otherwise
 *                   the flow seems to have ended, but stays on its backend. A SYN
 *                   goes to the flow's backend: its TCP answers with a challenge ACK
 *                   or a SYN-ACK.
 *
 * A flow that only seems to have ended counts as ended for schedulers, and lingers
 * after its timeout until its entry is needed.
 */
#ifndef FAIRLEAD_BALANCER_FLOW_LIFE_H
#define FAIRLEAD_BALANCER_FLOW_LIFE_H

#include "flow.h"
#include "flow_recent.h"
#include "parse.h"

/* What a client's packet proves in addition to its flags. */
enum flow_evidence {
	FLOW_PROVEN = 1,  /* it has the connection's own numbers */
	FLOW_PAYLOAD = 2, /* it has data, which cannot follow a FIN */
	FLOW_BEYOND = 4,  /* it acknowledges more than the FIN before it did */
};

/* How far from a connection's first bytes a FIN or RST may be to count as proven:
 * forged segments match both numbers once in 2^28. A flow that has sent or received
 * more can only seem to end.
 */
#define FLOW_SENT_MAX (1u << 16)
#define FLOW_RECEIVED_MAX (1u << 20)

/* Returns the state after a FIN or RST from a client, possibly forged. */
static __always_inline __u32 flow_next_end(__u32 state, bool resets, bool two_way, __u32 evidence)
{
	switch (state) {
	case FLOW_OPENING:
		return resets || two_way ? FLOW_OPENING : FLOW_FINISHING;
	case FLOW_ANSWERED:
		return resets ? FLOW_ANSWERED : FLOW_FINISHING;
	case FLOW_SERVER_FIN:
		return FLOW_TIME_WAIT;
	case FLOW_TIME_WAIT:
		return resets && evidence & FLOW_PROVEN ? FLOW_CLOSED : FLOW_TIME_WAIT;
	case FLOW_CLOSED:
		return FLOW_CLOSED;
	}
	if (evidence & FLOW_PROVEN)
		return resets ? FLOW_CLOSED : FLOW_TIME_WAIT;
	return resets && state != FLOW_FINISHING ? FLOW_CLIENT_RESET : FLOW_FINISHING;
}

/* Returns the state after a client's packet. two_way: nat or fullnat. Global, like
 * the next function, so that the verifier checks it once.
 */
__noinline __u32 flow_next(__u32 state, const struct packet *p, bool two_way, __u32 evidence)
{
	if (!p) /* for the verifier */
		return state;
	if (p->t.proto == IPPROTO_UDP)
		return two_way ? state : FLOW_UDP;
	if (p->flags & TCP_FINISHES)
		return flow_next_end(state, p->flags & TCP_RESETS, two_way, evidence);
	if (!(p->flags & TCP_CONTINUES)) /* a SYN: its backend decides */
		return state == FLOW_LINGERING ? FLOW_FINISHING : state;
	switch (state) {
	case FLOW_OPENING:
		return two_way ? FLOW_OPENING : FLOW_ESTABLISHED;
	case FLOW_ANSWERED:
	case FLOW_CLIENT_RESET: /* no data follows a genuine RST */
	case FLOW_LINGERING:
		return FLOW_ESTABLISHED;
	case FLOW_FINISHING:
		return evidence & FLOW_PAYLOAD ? FLOW_ESTABLISHED : FLOW_FINISHING;
	case FLOW_TIME_WAIT: /* the backend has not sent a FIN and continues */
		return !two_way && evidence & FLOW_BEYOND ? FLOW_FINISHING : FLOW_TIME_WAIT;
	}
	return state;
}

/* Returns the state after a backend's packet. */
__noinline __u32 flow_next_answer(__u32 state, const struct packet *p)
{
	const __u32 opening = FLOW_BIT(FLOW_OPENING) | FLOW_BIT(FLOW_ANSWERED);
	const __u32 over = FLOW_BIT(FLOW_ESTABLISHED) | FLOW_BIT(FLOW_ANSWERED) | FLOW_IS_OVER;
	__u32 bit = FLOW_BIT(state & 15);

	if (!p) /* for the verifier */
		return state;
	if (p->t.proto == IPPROTO_UDP)
		return FLOW_UDP;
	if (p->flags & TCP_RESETS) {
		/* A RST without ACK answers an ACK (RFC 9293, 3.5.2), which may be
		 * forged.
		 */
		return bit & opening && !(p->flags & TCP_CONTINUES) ? state : FLOW_CLOSED;
	}
	if (p->flags & TCP_FINISHES) {
		if (bit & (FLOW_UNPROVEN & ~FLOW_BIT(FLOW_LINGERING)) || bit & FLOW_IS_OVER)
			return state == FLOW_CLOSED ? FLOW_CLOSED : FLOW_TIME_WAIT;
		return FLOW_SERVER_FIN;
	}
	if (!(p->flags & TCP_CONTINUES)) /* a SYN-ACK: there is no older connection */
		return bit & over ? state : FLOW_ANSWERED;
	if (state == FLOW_OPENING)
		return FLOW_ANSWERED;
	return state == FLOW_LINGERING ? FLOW_ESTABLISHED : state;
}

/* Reports whether a packet that opens nothing only continues its flow. two_way: a
 * client's packet with nat or fullnat, where only the backend ends the opening state
 * of UDP.
 */
static __always_inline bool flow_is_steady(__u64 word, const struct packet *p, bool two_way)
{
	__u32 steady = FLOW_STEADY;

	if (two_way)
		steady |= FLOW_BIT(FLOW_UDP_OPENING);
	return steady >> flow_state(word) & 1 && !(p->flags & TCP_FINISHES);
}

/* Records a packet that does not change the state. If another CPU changes the word
 * meanwhile, its change wins.
 */
static __always_inline void flow_renew(struct flow_ref *r, __u32 now)
{
	__u32 state = flow_state(r->word), expires = now + flow_lives[state & 15];
	__u64 word = flow_word_with(r->word, state, expires);

	if (expires - flow_expires(r->word) < FLOW_RENEW)
		return;
	if (__sync_val_compare_and_swap(&r->flow->word, r->word, word) == r->word)
		r->word = word;
}

/* Moves a flow to another state and returns its word, unchanged if another CPU
 * changes it meanwhile. Not inlined: state changes are infrequent.
 */
__noinline __u64 flow_move(struct flow *flow, __u64 was, __u32 state, __u32 now)
{
	__u64 word, tag;
	__s64 more;

	if (!flow) /* for the verifier */
		return was;
	tag = flow_tag_of(flow);
	word = flow_word_with(was, state, now + flow_lives[state & 15]);
	if (__sync_val_compare_and_swap(&flow->word, was, word) != was)
		return was;
	if (FLOW_STEADY >> flow_state(was) & 1 && !(was & FLOW_NAT))
		recent_forget(tag);
	more = flow_counts(word) - flow_counts(was);
	if (more && flow_server_alive(word))
		connections_add(flow_server(word), more);
	return word;
}

/* Records a packet after which the flow is in this state. */
static __always_inline void flow_touch(struct flow_ref *r, __u32 state, __u32 now)
{
	if (state == flow_state(r->word))
		flow_renew(r, now);
	else
		r->word = flow_move(r->flow, r->word, state, now);
}

/* Describes a flow for TRACE_FLOW: its word, and the state before this packet. */
static __always_inline __u64 flow_note(__u64 word, __u32 before)
{
	return flow_server(word) | (__u64)before << 32 | (__u64)flow_state(word) << 40;
}

/* Records a packet from the flow's backend. */
static __always_inline void flow_touch_answer(struct flow_ref *r, const struct packet *p, __u32 now)
{
	__u32 before = flow_state(r->word);

	if (likely(flow_is_steady(r->word, p, false)))
		flow_renew(r, now);
	else
		flow_touch(r, flow_next_answer(before, p), now);
	trace_event(TRACE_FLOW, TRACE_FLOW_ANSWER, flow_note(r->word, before));
}

#endif
