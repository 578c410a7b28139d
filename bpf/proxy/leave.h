/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The last step of a packet whose entry is in s->made: changed, it goes on in
 * the kernel, which routes it and shows its firewall a flow that it can follow;
 * or straight out. That is the way of what the kernel would take for a forgery,
 * a packet that comes in with an address of its own as the source, and so of all
 * packets of such flows, in both directions.
 */
#ifndef FAIRLEAD_PROXY_LEAVE_H
#define FAIRLEAD_PROXY_LEAVE_H

#include "proxy/change.h"
#include "proxy/fragment.h"
#include "proxy/scratch.h"
#include "skb/way.h"

/* An own client's packets have a route already, that to the service. */
static __always_inline bool goes_straight(__u8 kind)
{
	return kind & PACKET_FLOW_MASKED ||
	       (kind & (PACKET_FLOW_OWN | PACKET_FLOW_BRIDGED) && !(kind & PACKET_FLOW_ANSWER));
}

/* Whether an entry's packets are changed at this place. The answers for others
 * are changed last, on their way out.
 */
static __always_inline bool is_place_of(__u8 kind, enum place place)
{
	bool leaving;

	if (kind & PACKET_FLOW_ANSWER)
		leaving = !(kind & (PACKET_FLOW_MASKED | PACKET_FLOW_OWN));
	else
		leaving = kind & PACKET_FLOW_OWN;
	return leaving == (place == PLACE_LEAVING);
}

/* The length of the longest packet that a frame becomes. The kernel is told, for
 * by itself it would count an Ethernet header where the other device has none.
 */
static __always_inline __u32 longest(struct __sk_buff *skb, const struct view *v)
{
	__u32 bytes = v->l4 - v->l3;
	__u8 doff = 0;

	if (!skb->gso_size)
		return skb->len - v->l3;
	bytes += skb->gso_size;
	if (v->t.proto != IPPROTO_TCP)
		return bytes + sizeof(struct udphdr);
	bpf_skb_load_bytes(skb, v->l4 + 12, &doff, sizeof(doff));
	return bytes + (doff >> 4) * 4;
}

static __noinline int no_way(struct __sk_buff *skb, struct scratch *s, long why)
{
	if (why != BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return drop(PACKET_COUNTER_DROPPED_NO_WAY);
	if (!may_not_fragment(skb, &s->view))
		return drop(PACKET_COUNTER_DROPPED_TOO_BIG);
	count(PACKET_COUNTER_TOO_BIG);
	return ANSWER_TOO_BIG;
}

static __always_inline long change_any(struct __sk_buff *skb, struct scratch *s, enum kind kind)
{
	const struct packet_flow *f = &s->made;

	return kind == KIND_TRANSPORT ? change(skb, &s->view, f)
				      : change_addrs(skb, &s->view, kind, &f->src, &f->dst);
}

static __noinline int leave_straight(struct __sk_buff *skb, struct scratch *s, enum kind kind)
{
	const struct view *v = &s->view;
	struct packet_flow *f = &s->made;
	bool own = f->kind & PACKET_FLOW_OWN;
	long err = find_way(skb, v, &f->src, &f->dst, longest(skb, v), &s->way);

	if (err)
		return kind == KIND_TRANSPORT ? no_way(skb, s, err)
					      : drop(PACKET_COUNTER_DROPPED_NO_WAY);
	if (!own && v->ttl <= 1) {
		count(PACKET_COUNTER_EXPIRED);
		return kind == KIND_TRANSPORT ? ANSWER_EXPIRED : TC_ACT_SHOT;
	}
	if (change_any(skb, s, kind) || (!own && rewrite_ttl(skb, v)))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	/* The kernel takes an Ethernet header off before it puts one on. */
	if (!s->l3 && bpf_skb_change_head(skb, sizeof(struct ethhdr), 0))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	return take_way(&s->way);
}

static __always_inline enum packet_counter work_done(__u8 kind)
{
	if (kind & PACKET_FLOW_ANSWER)
		return kind & PACKET_FLOW_MASKED ? PACKET_COUNTER_ANSWERED_STRAIGHT
						 : PACKET_COUNTER_ANSWERED;
	return goes_straight(kind) ? PACKET_COUNTER_FORWARDED_STRAIGHT : PACKET_COUNTER_FORWARDED;
}

static __noinline int leave(struct __sk_buff *skb, struct scratch *s)
{
	const struct view *v = &s->view;
	__u8 kind = s->made.kind;

	if (v->fragment) {
		if (v->t.proto == IPPROTO_SCTP &&
		    (v->t.sport != s->made.sport || v->t.dport != s->made.dport))
			return drop(PACKET_COUNTER_DROPPED_SCTP_FRAGMENT);
		remember_fragment(s);
	}
	count(work_done(kind));
	if (goes_straight(kind))
		return leave_straight(skb, s, KIND_TRANSPORT);
	if (change(skb, v, &s->made))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	return TC_ACT_UNSPEC;
}

/* A later fragment. */
static __noinline int leave_later(struct __sk_buff *skb, struct scratch *s)
{
	if (!find_fragment(s))
		return s->place == PLACE_LEAVING ? TC_ACT_UNSPEC
						 : pass(PACKET_COUNTER_PASSED_FRAGMENT);
	count(PACKET_COUNTER_FRAGMENT);
	if (goes_straight(s->made.kind))
		return leave_straight(skb, s, KIND_LATER);
	if (change_addrs(skb, &s->view, KIND_LATER, &s->made.src, &s->made.dst))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	return TC_ACT_UNSPEC;
}

#endif
