/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The return path: the backend's replies get the VIP as their source and go straight
 * to the client.
 */
#ifndef FAIRLEAD_DSR_REPLY_H
#define FAIRLEAD_DSR_REPLY_H

#include "common.h"
#include "skb/error.h"
#include "flows.h"
#include "fragments.h"
#include "maps.h"
#include "egress.h"
#include "skb/read.h"
#include "skb/rewrite.h"
#include "scratch.h"

/* Disabled for networks with a larger MTU to the backends than the backends' own
 * devices have.
 */
volatile const bool clamp_mss = true;

#define TCP_DOFF_AT 12 /* the data offset, in the upper half of that byte */
#define TCP_OPT_END 0
#define TCP_OPT_NOP 1
#define TCP_OPT_MSS 2
#define TCP_OPT_MSS_LEN 4
#define TCP_OPTS_MAX 40
/* The lower limit of clamping: RFC 9293, 3.7.1 for IPv4. */
#define MSS_MIN 536

/* Returns the offset of the MSS in the TCP header, or 0. Only even offsets, aligned
 * with the checksum's 16-bit words: every stack puts the option first.
 */
static __always_inline __u32 find_mss(struct __sk_buff *skb, const struct view *v, __u8 doff)
{
	__u32 at = sizeof(struct tcphdr), end = doff * 4;
	__u8 opt[2];

	for (int i = 0; i < 8; i++) {
		if (at + TCP_OPT_MSS_LEN > end || at > sizeof(struct tcphdr) + TCP_OPTS_MAX ||
		    bpf_skb_load_bytes(skb, v->l4 + at, opt, sizeof(opt)))
			return 0;
		if (opt[0] == TCP_OPT_MSS && opt[1] == TCP_OPT_MSS_LEN)
			return at & 1 ? 0 : at + 2;
		if (opt[0] == TCP_OPT_END)
			return 0;
		if (opt[0] == TCP_OPT_NOP)
			at++;
		else if (opt[1] < 2)
			return 0;
		else
			at += opt[1];
	}
	return 0;
}

/* A SYN-ACK limits the client's segment size. Reduces it by the load balancer's
 * overhead, so that its packets fit the path to the backend.
 */
static __noinline long rewrite_mss(struct __sk_buff *skb, const struct view *v, __u8 overhead)
{
	__be16 old, new;
	__u8 doff;
	__u32 at;
	long err = bpf_skb_load_bytes(skb, v->l4 + TCP_DOFF_AT, &doff, sizeof(doff));

	if (err)
		return err;
	at = find_mss(skb, v, doff >> 4);
	if (!at || bpf_skb_load_bytes(skb, v->l4 + at, &old, sizeof(old)) ||
	    bpf_ntohs(old) < MSS_MIN + overhead)
		return 0;
	new = bpf_htons(bpf_ntohs(old) - overhead);
	return bpf_l4_csum_replace(skb, check_at(v, KIND_TRANSPORT), old, new, sizeof(new))
		       ?: bpf_skb_store_bytes(skb, v->l4 + at, &new, sizeof(new), 0);
}

/* The result of rewriting a reply. */
struct answer {
	struct addr vip;
	__be16 port;
	__u8 overhead;
	enum kind kind; /* of packet: which part is rewritten */
};

static __noinline long restore(struct __sk_buff *skb, const struct view *v, const struct answer *a)
{
	long err;

	if (a->kind != KIND_TRANSPORT)
		return rewrite_addr(skb, v, a->kind, SIDE_SRC, &a->vip);
	err = rewrite(skb, v, SIDE_SRC, &a->vip, a->port);
	if (!err && clamp_mss && v->flags & VIEW_ACCEPTS)
		err = rewrite_mss(skb, v, a->overhead);
	return err;
}

/* The same, including the packet that an error quotes, which is in the scratch
 * memory, as is the VIP. (Separate from restore to save stack.)
 */
static __always_inline long restore_all(struct __sk_buff *skb, const struct view *v,
					const struct answer *a)
{
	struct scratch *s = scratch();

	if (a->kind == KIND_ICMP && (!s || translate(skb, v, &s->embedded, SIDE_DST, &s->vip)))
		return -1;
	return restore(skb, v, a);
}

/* A reply routed here, bypassing the kernel. If the kernel must inform the backend
 * (packet too long, TTL exceeded), the packet goes to it unmodified.
 */
static __noinline int restore_routed(struct __sk_buff *skb, const struct view *v,
				     const struct answer *a)
{
	struct way way = {};
	long none = find_way(skb, v, &a->vip, &v->t.dst, 0, &way);

	if (none == BPF_FIB_LKUP_RET_FRAG_NEEDED && may_not_fragment(skb, v))
		return pass(SERVER_COUNTER_PASSED_TOO_BIG);
	if (v->ttl <= 1)
		return pass(SERVER_COUNTER_PASSED_TTL);
	if (restore_all(skb, v, a) || (!none && rewrite_ttl(skb, v)))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	if (none)
		return pass(SERVER_COUNTER_RESTORED_PASSED);
	count(SERVER_COUNTER_RESTORED_STRAIGHT);
	return take_way(&way);
}

/* A reply of the node itself, already routed by its kernel. */
static __always_inline int restore_own(struct __sk_buff *skb, const struct view *v,
				       const struct answer *a)
{
	if (restore_all(skb, v, a))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	return pass(SERVER_COUNTER_RESTORED_STRAIGHT);
}

static __always_inline int answered(struct __sk_buff *skb, const struct view *v,
				    const struct answer *a, enum server_place place)
{
	return place == SERVER_PLACE_POD ? restore_routed(skb, v, a) : restore_own(skb, v, a);
}

/* Reports whether a reply is to the SYN or INIT that came directly to the backend,
 * and not to one through the VIP. If the backend accepts it, the flow is deleted.
 */
static __always_inline bool is_direct_answer(struct __sk_buff *skb, const struct view *v,
					     const struct found *r, const struct tuple *flow)
{
	__u32 number;

	if (!(r->flow->state & FLOW_DOUBTED) || !answers_attempt(skb, v, &number) ||
	    *r->opened != (__u16)number)
		return false;
	if (ends_older(skb, v) && forget_flow(flow))
		count(SERVER_COUNTER_FLOW_FORGOTTEN);
	return true;
}

/* Returns the rewritten form of a flow's reply. Returns false if the flow is unknown,
 * or its entry is being rewritten.
 */
static __always_inline bool answer_of(const struct tuple *flow, struct answer *a, struct found *r)
{
	if (!find_flow(r, flow))
		return false;
	a->vip = r->flow->vip;
	a->port = r->flow->vip_port;
	a->overhead = r->flow->overhead;
	return flow_holds(r);
}

static __always_inline int transport_back(struct __sk_buff *skb, const struct view *v,
					  enum server_place place)
{
	struct answer a = {.kind = KIND_TRANSPORT};
	struct tuple flow = {
		.src = v->t.dst,
		.dst = v->t.src,
		.sport = v->t.dport,
		.dport = v->t.sport,
		.proto = v->t.proto,
	};
	struct server_flow *f;
	struct found r;
	__u8 state;

	if (!answer_of(&flow, &a, &r) || is_direct_answer(skb, v, &r, &flow))
		return TC_ACT_UNSPEC;
	f = r.flow;
	state = v->flags & VIEW_RESET ? FLOW_RESET : FLOW_ANSWERED;
	if (state == FLOW_ANSWERED)
		unnote_flow(f, &flow, FLOW_CLIENT_RESET);
	trace_flow(f, &flow, state | (v->flags & VIEW_FIN ? FLOW_SERVER_FIN : 0));
	if (v->fragment)
		remember_fragment(v, FRAGMENT_ANSWER, &a.vip);
	return answered(skb, v, &a, place);
}

/* A later fragment of a reply. */
static __noinline int later_back(struct __sk_buff *skb, const struct view *v,
				 enum server_place place)
{
	struct answer a = {.kind = KIND_LATER};
	struct fragment *f = find_fragment(v);

	if (!f || f->fate != FRAGMENT_ANSWER)
		return pass(SERVER_COUNTER_PASSED_FRAGMENT);
	a.vip = f->vip;
	count(SERVER_COUNTER_FRAGMENT_RESTORED);
	return answered(skb, v, &a, place);
}

/* An ICMP error from the backend or this node about a packet from the client: for the
 * client it comes from the VIP and is about a packet to the VIP.
 */
static __noinline int error_back(struct __sk_buff *skb, struct scratch *s, enum server_place place)
{
	struct answer a = {.kind = KIND_ICMP};
	struct found r;
	struct embedded *e = &s->embedded;
	struct view *v = &s->outer;

	if (!read_embedded(skb, v, e) || !addr_equal(&e->t.src, &v->t.dst))
		return TC_ACT_UNSPEC;
	if (!answer_of(&e->t, &a, &r))
		return TC_ACT_UNSPEC;
	s->vip.addr = a.vip;
	s->vip.port = a.port;
	count(SERVER_COUNTER_ERROR_RESTORED);
	return answered(skb, v, &a, place);
}

static __always_inline int back(struct __sk_buff *skb, enum server_place place)
{
	struct scratch *s = scratch();
	struct view *v;

	if (!s)
		return TC_ACT_UNSPEC;
	v = &s->outer;
	switch (read_outer(skb, v)) {
	case KIND_TRANSPORT:
		return v->n ? TC_ACT_UNSPEC : transport_back(skb, v, place);
	case KIND_LATER:
		return later_back(skb, v, place);
	case KIND_ICMP:
		return error_back(skb, s, place);
	default:
		return TC_ACT_UNSPEC;
	}
}

/* Handles ICMP errors of the node's own kernel about packets to its pods. */
static __always_inline int node_back(struct __sk_buff *skb)
{
	struct scratch *s = scratch();
	struct view *v;

	if (!s)
		return TC_ACT_UNSPEC;
	v = &s->outer;
	return read_outer(skb, v) == KIND_ICMP ? error_back(skb, s, SERVER_PLACE_HOST)
					       : TC_ACT_UNSPEC;
}

#endif
