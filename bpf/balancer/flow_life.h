/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How packets change the state of a flow. Who knows addresses and ports can send
 * any segment in the client's name, so none of the client's makes the balancer
 * forget a flow that may go on (RFC 5961, and Linux' nf_conntrack_proto_tcp.c):
 *
 *   nat, fullnat    the server's answer decides: a FIN or RST of its own, or a
 *                   SYN-ACK to a SYN
 *   direct return   the balancer sees no answers. A FIN or RST counts if it has the
 *                   connection's own numbers, which only its ends know; else the
 *                   flow seems to have ended, and its server keeps it. A SYN goes
 *                   to the server that the flow has: its TCP answers with a
 *                   challenge, or by SYN-ACK.
 *
 * A flow that only seems to have ended counts as ended for schedulers, and lingers
 * after its time until somebody needs its place.
 */
#ifndef FAIRLEAD_BALANCER_FLOW_LIFE_H
#define FAIRLEAD_BALANCER_FLOW_LIFE_H

#include "flow.h"
#include "parse.h"

/* What a client's packet shows apart from its flags. */
enum flow_evidence {
	FLOW_PROVEN = 1,  /* it has the connection's own numbers */
	FLOW_PAYLOAD = 2, /* bytes of data, which none follow a FIN */
	FLOW_BEYOND = 4,  /* it acknowledges more than the FIN before it did */
};

/* How far from a connection's first bytes its end may be to prove itself: both
 * numbers are right by chance once in 2^28 forged segments. What has sent or
 * received more only seems to end.
 */
#define FLOW_SENT_MAX (1u << 16)
#define FLOW_RECEIVED_MAX (1u << 20)

/* How a packet with FIN or RST in a client's name changes a flow. */
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

/* The state after a client's packet. two_way: by nat and fullnat. Global, as the
 * next one, so that the verifier looks at it once.
 */
__noinline __u32 flow_next(__u32 state, const struct packet *p, bool two_way, __u32 evidence)
{
	if (!p) /* for the verifier */
		return state;
	if (p->t.proto == IPPROTO_UDP)
		return two_way ? state : FLOW_UDP;
	if (p->flags & TCP_FINISHES)
		return flow_next_end(state, p->flags & TCP_RESETS, two_way, evidence);
	if (!(p->flags & TCP_CONTINUES)) /* a SYN: whatever it is, its server says */
		return state == FLOW_LINGERING ? FLOW_FINISHING : state;
	switch (state) {
	case FLOW_OPENING:
		return two_way ? FLOW_OPENING : FLOW_ESTABLISHED;
	case FLOW_ANSWERED:
	case FLOW_CLIENT_RESET: /* who resets sends no more */
	case FLOW_LINGERING:
		return FLOW_ESTABLISHED;
	case FLOW_FINISHING:
		return evidence & FLOW_PAYLOAD ? FLOW_ESTABLISHED : FLOW_FINISHING;
	case FLOW_TIME_WAIT: /* the server has not finished, but goes on */
		return !two_way && evidence & FLOW_BEYOND ? FLOW_FINISHING : FLOW_TIME_WAIT;
	}
	return state;
}

/* The state after a server's packet. */
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
		/* Without ACK it answers an ACK (RFC 9293, 3.5.2): perhaps a forged one. */
		return bit & opening && !(p->flags & TCP_CONTINUES) ? state : FLOW_CLOSED;
	}
	if (p->flags & TCP_FINISHES) {
		if (bit & (FLOW_UNPROVEN & ~FLOW_BIT(FLOW_LINGERING)) || bit & FLOW_IS_OVER)
			return state == FLOW_CLOSED ? FLOW_CLOSED : FLOW_TIME_WAIT;
		return FLOW_SERVER_FIN;
	}
	if (!(p->flags & TCP_CONTINUES)) /* a SYN-ACK: it has no older connection */
		return bit & over ? state : FLOW_ANSWERED;
	if (state == FLOW_OPENING)
		return FLOW_ANSWERED;
	return state == FLOW_LINGERING ? FLOW_ESTABLISHED : state;
}

/* Whether a packet that opens nothing only continues its flow. two_way: it is a
 * client's by nat and fullnat, where only the server ends the opening of UDP.
 */
static __always_inline bool flow_is_steady(__u64 word, const struct packet *p, bool two_way)
{
	__u32 steady = FLOW_BIT(FLOW_ESTABLISHED) | FLOW_BIT(FLOW_UDP);

	if (two_way)
		steady |= FLOW_BIT(FLOW_UDP_OPENING);
	return steady >> flow_state(word) & 1 && !(p->flags & TCP_FINISHES);
}

/* Notes that a packet went by which leaves the state as it is. A word that another
 * CPU changes meanwhile stays as that one has it.
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

/* Brings a flow into another state: its word then, which stays as it was where
 * another CPU changes it meanwhile. Not inlined: a flow has few of them.
 */
__noinline __u64 flow_move(struct flow *flow, __u64 was, __u32 state, __u32 now)
{
	__u64 word;
	__s64 more;

	if (!flow) /* for the verifier */
		return was;
	word = flow_word_with(was, state, now + flow_lives[state & 15]);
	if (__sync_val_compare_and_swap(&flow->word, was, word) != was)
		return was;
	more = flow_counts(word) - flow_counts(was);
	if (more && flow_server_alive(word))
		connections_add(flow_server(word), more);
	return word;
}

/* Notes that a packet went by, after which the flow is in that state. */
static __always_inline void flow_touch(struct flow_ref *r, __u32 state, __u32 now)
{
	if (state == flow_state(r->word))
		flow_renew(r, now);
	else
		r->word = flow_move(r->flow, r->word, state, now);
}

/* A flow for TRACE_FLOW: its word, and the state before this packet. */
static __always_inline __u64 flow_note(__u64 word, __u32 before)
{
	return flow_server(word) | (__u64)before << 32 | (__u64)flow_state(word) << 40;
}

/* Notes that a packet of its server's went by. */
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
