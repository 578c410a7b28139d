/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors about packets of flows. The error quotes a packet as it was on the
 * wire, which matches the key of the flow's other half. That entry has the original
 * packet and the error's destination.
 */
#ifndef FAIRLEAD_PROXY_ERROR_H
#define FAIRLEAD_PROXY_ERROR_H

#include "option.h"
#include "proxy/egress.h"
#include "proxy/scratch.h"
#include "skb/error.h"

/* Reports whether the error's source is rewritten: the far end is known here by
 * another address, and an endpoint must not receive an error from an address of the
 * client's side. Routers in between keep their own.
 */
static __always_inline bool speaker_changes(const struct packet_flow *f, const struct scratch *s)
{
	if (addr_equal(&s->view.t.src, &s->embedded.t.dst))
		return true;
	return (f->kind & (PACKET_FLOW_MASKED | PACKET_FLOW_ANSWER)) == PACKET_FLOW_MASKED;
}

/* Restores the quoted packet's original fields: s->made reversed. */
static __noinline long requote(struct __sk_buff *skb, struct scratch *s)
{
	const struct packet_flow *f = &s->made;
	struct endpoint src = {.addr = f->dst, .port = f->dport};
	struct endpoint dst = {.addr = f->src, .port = f->sport};

	return translate(skb, &s->view, &s->embedded, SIDE_SRC, &src)
		       ?: translate(skb, &s->view, &s->embedded, SIDE_DST, &dst);
}

static __noinline int about_flow(struct __sk_buff *skb, struct scratch *s)
{
	const struct embedded *e = &s->embedded;

	if (!read_embedded(skb, &s->view, &s->embedded) || !addr_equal(&e->t.src, &s->view.t.dst))
		return TC_ACT_UNSPEC;
	s->key.src = e->t.dst;
	s->key.dst = e->t.src;
	s->key.sport = e->t.dport;
	s->key.dport = e->t.sport;
	s->key.proto = e->t.proto;
	__builtin_memset(s->key.zero, 0, sizeof(s->key.zero));
	if (!find_flow(&s->key, &s->made) || !is_place_of(s->made.kind, s->place))
		return TC_ACT_UNSPEC;
	if (requote(skb, s))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	if (!speaker_changes(&s->made, s))
		s->made.src = s->view.t.src;
	count(PACKET_COUNTER_ERROR);
	return leave_changed(skb, s, KIND_ICMP);
}

#endif
