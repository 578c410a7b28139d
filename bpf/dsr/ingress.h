/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets to the backend: removes the tunnel or list, addresses the packet to the
 * backend itself and stores its VIP, or forwards it to the backend that may know the
 * flow.
 */
#ifndef FAIRLEAD_DSR_INGRESS_H
#define FAIRLEAD_DSR_INGRESS_H

#include "auth_check.h"
#include "balancers.h"
#include "common.h"
#include "direct.h"
#include "skb/error.h"
#include "fragments.h"
#include "option_list.h"
#include "maps.h"
#include "egress.h"
#include "skb/read.h"
#include "skb/rewrite.h"
#include "second_chance.h"

/* The port of GUE (IANA: "gue"). */
volatile const __u16 gue_port = 6080;

/* The end of a tunnel: everything between the outer header and the inner packet. */
struct tunnel {
	struct list list;
	__u32 l3; /* offset of the inner packet */
	bool v6;  /* it is IPv6 */
	bool gue;
	bool sum; /* the outer header has a checksum over the packet */
};

static __always_inline void read_ipip(const struct view *outer, bool v6, struct tunnel *t)
{
	t->list.at = list_at(outer);
	t->list.n = outer->n;
	t->list.tagged = outer->flags & VIEW_TAGGED;
	t->l3 = outer->l4;
	t->v6 = v6;
}

/* Reads GUE's header. Returns false if it is not ours. */
__noinline bool read_gue(struct __sk_buff *skb, const struct view *outer, struct tunnel *t)
{
	struct gue_list l;
	struct gue g;
	__be16 sum;
	__u32 at;

	if (!outer || !t)
		return false;
	at = outer->l4 + sizeof(struct udphdr);
	if (bpf_skb_load_bytes(skb, at, &g, sizeof(g)) || g.version || g.control || g.flags ||
	    (g.proto != IPPROTO_IPIP && g.proto != IPPROTO_IPV6) ||
	    bpf_skb_load_bytes(skb, outer->l4 + offsetof(struct udphdr, check), &sum, sizeof(sum)))
		return false;
	at += sizeof(g);
	t->gue = true;
	t->sum = sum;
	t->v6 = g.proto == IPPROTO_IPV6;
	t->l3 = at + g.hlen * 4;
	if (g.hlen == 0)
		return true;
	if (bpf_skb_load_bytes(skb, at, &l, sizeof(l)) || l.magic != OPTION4_TYPE || l.zero ||
	    (l.tag && l.tag != GUE_TAG_WORDS) || (l.n == 0 && !l.tag) || l.n > ENDPOINTS_MAX ||
	    gue_list_bytes_of(l.n, l.tag, outer->v6) != g.hlen * 4)
		return false;
	t->list.n = l.n;
	t->list.tagged = l.tag;
	t->list.at = at + sizeof(l);
	return true;
}

static __always_inline bool tunnels_checked(void)
{
	return balancers_checked | auth_policy;
}

/* Reports whether a packet's sender is allowed and whether it has the required tag.
 * whole: it is no fragment, and its ports directly follow its IP header.
 */
static __noinline bool tunnel_admitted(struct __sk_buff *skb, const struct view *outer,
				       const struct tunnel *t, struct scratch *s, bool whole)
{
	struct auth_scratch *a;

	if (!from_balancer(outer)) {
		count(SERVER_COUNTER_DROPPED_UNKNOWN_BALANCER);
		return false;
	}
	if (!auth_policy)
		return true;
	a = auth_scratch_get();
	if (!a)
		return false;
	auth_packet(a, &s->inner, whole);
	s->place = t->gue ? AUTH_GUE : AUTH_OUTER;
	return auth_admits(skb, &t->list, &outer->t.src, &outer->t.dst, s->place);
}

/* Forwards an encapsulated packet to the next backend. */
static __noinline int tunnel_on(struct __sk_buff *skb, struct view *outer, const struct tunnel *t,
				const struct next *next, enum server_place place)
{
	bool in = place == SERVER_PLACE_HOST;

	if (in && outer->ttl <= 1)
		return pass(SERVER_COUNTER_PASSED_TTL);
	if (auth_policy)
		auth_goes_on(skb, &t->list, next->at + 1, &outer->t.src, &next->to.addr);
	if ((t->gue ? shorten_gue(skb, outer, &t->list, next->at + 1)
		    : shorten(skb, outer, 0, next->at + 1)) ||
	    rewrite_outer_dst(skb, outer, &next->to.addr) || (in && rewrite_ttl(skb, outer)))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	return send_to_second(skb, outer, &next->to.addr);
}

/* RFC 6040: congestion in the tunnel is congestion of the flow. */
static __always_inline int tunnel_ended(struct __sk_buff *skb, const struct view *outer,
					enum server_counter what)
{
	if ((outer->tos & 3) == 3)
		bpf_skb_ecn_set_ce(skb);
	count(what);
	return TC_ACT_UNSPEC;
}

/* Reports whether the packet's list has another backend of its row's frontend. */
static __always_inline bool tunnel_more(struct __sk_buff *skb, const struct view *outer,
					const struct tunnel *t, struct scratch *s,
					const struct local_vip *row, __u8 proto, bool ports)
{
	struct endpoint self = {.addr = outer->t.dst};

	if (!t->list.n)
		return false;
	next_of(&s->next, &s->vip, row, proto, ports);
	return next_server(skb, &t->list, &self);
}

static __always_inline void tunnel_key(struct local_vip_key *key, const struct view *outer,
				       const struct addr *vip, __be16 port, __u8 proto)
{
	__builtin_memset(key, 0, sizeof(*key));
	addr_copy_aligned(&key->vip, vip);
	addr_copy_aligned(&key->server, &outer->t.dst);
	key->vip_port = port;
	key->proto = proto;
}

/* Decapsulates a packet whose VIP has a backend here. */
static __noinline int tunnelled(struct __sk_buff *skb, struct view *outer, const struct tunnel *t,
				struct scratch *s, enum server_place place)
{
	struct view *inner = &s->inner;
	struct local_vip_key *key = &s->key;
	struct tuple *flow = &s->flow;
	struct local_vip *row;
	enum verdict verdict;
	__u8 overhead;

	tunnel_key(key, outer, &inner->t.dst, inner->t.dport, inner->t.proto);
	row = find_kept_row(key);
	if (!row || row->method != SERVER_METHOD_TUNNEL || addr_is_v4(&row->deliver) == inner->v6)
		return pass(SERVER_COUNTER_PASSED_FOREIGN_TUNNEL);
	if (row->place != place)
		return TC_ACT_UNSPEC;
	if (tunnels_checked() &&
	    !tunnel_admitted(skb, outer, t, s, inner->plain && !inner->fragment))
		return TC_ACT_SHOT;
	flow_at(flow, &inner->t, row);
	addr_copy_aligned(&s->vip.addr, &inner->t.dst);
	s->vip.port = inner->t.dport;
	overhead = overhead_tunnel(t->gue, outer->v6);
	verdict =
		decide(flow, inner->flags, tunnel_more(skb, outer, t, s, row, inner->t.proto, true),
		       &s->vip, row, overhead, &s->made);
	if (verdict == VERDICT_SEND_ON) {
		if (inner->fragment)
			remember_fragment(inner, FRAGMENT_SENT_ON, NULL);
		return tunnel_on(skb, outer, t, &s->next, place);
	}
	if (verdict != VERDICT_TAKE)
		return refuse(verdict);
	if (strip_outer(skb, outer, inner, t->sum) ||
	    rewrite(skb, inner, SIDE_DST, &flow->dst, flow->dport))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	return tunnel_ended(skb, outer, SERVER_COUNTER_TUNNEL_DELIVERED);
}

static __noinline int tunnelled_later(struct __sk_buff *skb, struct view *outer,
				      const struct tunnel *t, struct scratch *s,
				      enum server_place place)
{
	struct view *inner = &s->inner;
	struct local_vip *row = find_address_row(&inner->t.dst, &outer->t.dst, inner->t.proto);

	if (!row || addr_is_v4(&row->deliver) == inner->v6)
		return pass(SERVER_COUNTER_PASSED_FRAGMENT);
	if (row->place != place)
		return TC_ACT_UNSPEC;
	if (tunnels_checked() && !tunnel_admitted(skb, outer, t, s, false))
		return TC_ACT_SHOT;
	addr_copy_aligned(&s->vip.addr, &inner->t.dst);
	if (fragment_had(inner, FRAGMENT_SENT_ON) &&
	    tunnel_more(skb, outer, t, s, row, inner->t.proto, false))
		return tunnel_on(skb, outer, t, &s->next, place);
	if (strip_outer(skb, outer, inner, t->sum) ||
	    rewrite_addr(skb, inner, KIND_LATER, SIDE_DST, &row->deliver))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	return tunnel_ended(skb, outer, SERVER_COUNTER_FRAGMENT_DELIVERED);
}

/* An ICMP error for the VIP, about a packet that its backend sent as the VIP. */
static __noinline int tunnelled_error(struct __sk_buff *skb, struct view *outer,
				      const struct tunnel *t, struct scratch *s,
				      enum server_place place)
{
	struct view *inner = &s->inner;
	struct local_vip_key *key = &s->key;
	struct endpoint to = {};
	struct local_vip *row;
	struct embedded *e = &s->embedded;
	struct tuple *flow = &s->flow;
	__u32 gone;

	if (!read_embedded(skb, inner, e) || !addr_equal(&e->t.src, &inner->t.dst))
		return pass(SERVER_COUNTER_PASSED_FOREIGN_ERROR);
	tunnel_key(key, outer, &inner->t.dst, e->t.sport, e->t.proto);
	row = find_row(key);
	if (!row || row->method != SERVER_METHOD_TUNNEL || addr_is_v4(&row->deliver) == inner->v6)
		return pass(SERVER_COUNTER_PASSED_FOREIGN_ERROR);
	if (row->place != place)
		return TC_ACT_UNSPEC;
	if (tunnels_checked() && !tunnel_admitted(skb, outer, t, s, false))
		return TC_ACT_SHOT;
	flow_of_error(e, row, flow);
	addr_copy_aligned(&s->vip.addr, &inner->t.dst);
	s->vip.port = e->t.sport;
	if (!known(flow) && tunnel_more(skb, outer, t, s, row, e->t.proto, true))
		return tunnel_on(skb, outer, t, &s->next, place);
	to.addr = flow->dst;
	to.port = flow->dport;
	gone = inner->l3 - outer->l3;
	e->l3 -= gone;
	e->l4 -= gone;
	if (strip_outer(skb, outer, inner, t->sum) || translate(skb, inner, e, SIDE_SRC, &to) ||
	    rewrite_addr(skb, inner, KIND_ICMP, SIDE_DST, &to.addr))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	return tunnel_ended(skb, outer, SERVER_COUNTER_ERROR_DELIVERED);
}

static __always_inline int tunnel_end(struct __sk_buff *skb, struct view *outer, struct tunnel *t,
				      struct scratch *s, enum server_place place)
{
	struct view *inner = &s->inner;

	t->list.v6 = outer->v6;
	switch (read_inner(skb, t->l3, t->v6, inner)) {
	case KIND_TRANSPORT:
		return inner->n ? TC_ACT_UNSPEC : tunnelled(skb, outer, t, s, place);
	case KIND_LATER:
		return tunnelled_later(skb, outer, t, s, place);
	case KIND_ICMP:
		return tunnelled_error(skb, outer, t, s, place);
	case KIND_MALFORMED:
		return pass(SERVER_COUNTER_PASSED_MALFORMED);
	default:
		return TC_ACT_UNSPEC;
	}
}

static __always_inline int toward(struct __sk_buff *skb, enum server_place place)
{
	struct tunnel t = {};
	struct scratch *s = scratch();
	struct view *v;
	enum kind kind;

	if (!s)
		return TC_ACT_UNSPEC;
	v = &s->outer;
	kind = read_outer(skb, v);

	switch (kind) {
	case KIND_TRANSPORT:
		if (v->t.proto == IPPROTO_UDP && v->t.dport == bpf_htons(gue_port) &&
		    !v->fragment && v->plain && read_gue(skb, v, &t)) {
			if (skb->gso_size)
				return pass(SERVER_COUNTER_PASSED_BUNDLE);
			break;
		}
		return v->n || dr_served ? direct(skb, s, place) : plain(skb, v, place);
	case KIND_TUNNEL4:
	case KIND_TUNNEL6:
		if (v->fragment)
			return pass(SERVER_COUNTER_PASSED_OUTER_FRAGMENT);
		read_ipip(v, kind == KIND_TUNNEL6, &t);
		break;
	case KIND_LATER:
		if (v->t.proto == IPPROTO_IPIP || v->t.proto == IPPROTO_IPV6)
			return pass(SERVER_COUNTER_PASSED_OUTER_FRAGMENT);
		return direct_later(skb, s, place);
	case KIND_ICMP:
		return direct_error(skb, s, place);
	case KIND_MALFORMED:
		return pass(SERVER_COUNTER_PASSED_MALFORMED);
	default:
		return TC_ACT_UNSPEC;
	}
	return tunnel_end(skb, v, &t, s, place);
}

#endif
