/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets without a tunnel: those of dsr-nat, addressed to the backend with the VIP
 * first in their list; those of dr, addressed to the VIP; and unrelated ones.
 */
#ifndef FAIRLEAD_DSR_DIRECT_H
#define FAIRLEAD_DSR_DIRECT_H

#include "auth_check.h"
#include "common.h"
#include "skb/error.h"
#include "fragments.h"
#include "option_list.h"
#include "maps.h"
#include "egress.h"
#include "skb/read.h"
#include "skb/rewrite.h"
#include "scratch.h"
#include "second_chance.h"

/* Whether any backend uses dr: only then is a packet without a list looked up by its
 * destination. Set by the agent.
 */
volatile __u32 dr_served = 0;

/* Passes a packet from the network directly to its pod's device, bypassing the node's
 * firewall: its connection tracking never sees the replies, which go straight out,
 * and would call everything after the SYN invalid. A packet without such a route is
 * left to the kernel.
 */
static __noinline int shortcut(struct __sk_buff *skb, struct view *v, const struct addr *server)
{
	struct way way = {};

	if (v->ttl <= 1 || find_way(skb, v, &v->t.src, server, 0, &way))
		return TC_ACT_UNSPEC;
	if (rewrite_ttl(skb, v))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	if (v->fragment)
		remember_fragment(v, FRAGMENT_SHORTCUT, NULL);
	count(SERVER_COUNTER_SHORTCUT);
	return take_way(&way);
}

/* A packet for a backend that other programs handle: at the node's ingress, one for a
 * pod.
 */
static __always_inline int not_here(struct __sk_buff *skb, struct view *v, enum server_place place,
				    const struct local_vip *row)
{
	return place == SERVER_PLACE_HOST ? shortcut(skb, v, &row->server) : TC_ACT_UNSPEC;
}

/* A SYN addressed directly to the backend, on the same ports as a flow through the
 * VIP. It may be forged with the client's address, so the backend's reply decides
 * (RFC 5961, 4), see is_direct_answer. The same applies while the flow is opening.
 */
static __always_inline int plain_opens(struct __sk_buff *skb, const struct view *v)
{
	struct found r;

	if (!find_flow(&r, &v->t))
		return TC_ACT_UNSPEC;
	if (flow_alive(r.flow, flow_clock()))
		change_flow(&v->t, FLOW_DOUBTED, 0, false, opening_number(skb, v));
	else if (forget_flow(&v->t))
		count(SERVER_COUNTER_FLOW_FORGOTTEN);
	return TC_ACT_UNSPEC;
}

/* A packet addressed to the backend itself. A direct connection with the same ports
 * as an older flow through the VIP must not be answered with the VIP. Later packets
 * of a dsr-nat flow look the same.
 */
static __always_inline int plain(struct __sk_buff *skb, struct view *v, enum server_place place)
{
	struct server_flow *f;
	struct found r;

	if (v->flags & VIEW_OPENS)
		return plain_opens(skb, v);
	if (!find_flow(&r, &v->t))
		return TC_ACT_UNSPEC;
	f = r.flow;
	if (f->method == SERVER_METHOD_TUNNEL)
		return TC_ACT_UNSPEC;
	if (place == SERVER_PLACE_HOST && f->place != SERVER_PLACE_HOST)
		return shortcut(skb, v, &v->t.dst);
	touch_flow(f, flow_clock());
	trace_flow(f, &v->t, FLOW_CONFIRMED | state_of(v->flags));
	return TC_ACT_UNSPEC;
}

/* Without ports and without a list. */
static __always_inline int plain_later(struct __sk_buff *skb, struct view *v,
				       enum server_place place)
{
	if (place == SERVER_PLACE_HOST && fragment_had(v, FRAGMENT_SHORTCUT))
		return shortcut(skb, v, &v->t.dst);
	return TC_ACT_UNSPEC;
}

static __always_inline int plain_error(struct __sk_buff *skb, struct scratch *s,
				       enum server_place place)
{
	struct embedded *e = &s->embedded;
	struct view *v = &s->outer;
	struct tuple t = {};
	struct found r;

	if (place != SERVER_PLACE_HOST || !read_embedded(skb, v, e))
		return TC_ACT_UNSPEC;
	t.src = e->t.dst;
	t.dst = e->t.src;
	t.sport = e->t.dport;
	t.dport = e->t.sport;
	t.proto = e->t.proto;
	if (!find_flow(&r, &t) || r.flow->method == SERVER_METHOD_TUNNEL ||
	    r.flow->place == SERVER_PLACE_HOST)
		return TC_ACT_UNSPEC;
	return shortcut(skb, v, &v->t.dst);
}

/* Makes the tag for the packet at the next backend: its list is the VIP and the
 * remaining endpoints.
 */
static __noinline void direct_goes_on(struct __sk_buff *skb, const struct view *v,
				      const struct next *next, bool whole)
{
	struct auth_scratch *a = auth_scratch_get();
	struct list l = {.at = list_at(v), .first = 1, .n = v->n, .v6 = v->v6};

	if (!a)
		return;
	a->inner.dst = next->to.addr;
	if (whole)
		a->inner.dport = next->to.port;
	auth_goes_on(skb, &l, next->at + 1, &v->t.src, &next->to.addr);
}

/* Addresses a packet to the next backend of its list, shortens the list to the VIP
 * and the remaining endpoints, and sends it there. e is the packet that an ICMP error
 * is about.
 */
static __noinline int send_on(struct __sk_buff *skb, struct view *v, const struct next *next,
			      const struct embedded *e, enum server_place place)
{
	bool in = place == SERVER_PLACE_HOST;
	long err;

	if (addr_is_v4(&next->to.addr) == v->v6)
		return pass(SERVER_COUNTER_PASSED_FOREIGN_OPTION);
	if (in && v->ttl <= 1)
		return pass(SERVER_COUNTER_PASSED_TTL);
	if (v->fragment)
		remember_fragment(v, FRAGMENT_SENT_ON, NULL);
	if (auth_policy)
		direct_goes_on(skb, v, next, !e && !v->fragment && v->t.dport);
	if (e)
		err = translate(skb, v, e, SIDE_SRC, &next->to);
	else
		err = 0;
	if (err || shorten(skb, v, 1, next->at + 1))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	if (e || !next->listed_port)
		err = rewrite_addr(skb, v, e ? KIND_ICMP : KIND_LATER, SIDE_DST, &next->to.addr);
	else
		err = rewrite(skb, v, SIDE_DST, &next->to.addr, next->to.port);
	if (err || (in && rewrite_ttl(skb, v)))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	return send_to_second(skb, v, &next->to.addr);
}

/* A packet outside a tunnel, as found here. */
struct direct {
	struct local_vip *row;
	struct list list;
	bool ports; /* it has ports, even if they are 0 */
};

/* Finds the row of a packet: by the VIP at the start of its list, or by its
 * destination. server_port is 0 for packets without ports.
 */
static __noinline bool find_direct(struct __sk_buff *skb, struct scratch *s, __be16 server_port,
				   __u8 proto, struct direct *d)
{
	const struct view *v = &s->outer;
	struct endpoint *vip = &s->vip;
	struct local_vip_key key __attribute__((aligned(8))) = {
		.server = v->t.dst, .server_port = server_port, .proto = proto};

	d->list.at = list_at(v);
	d->list.first = 1;
	d->list.n = v->n;
	d->list.v6 = v->v6;
	d->list.tagged = v->flags & VIEW_TAGGED;
	vip->addr = v->t.dst;
	vip->port = server_port;
	if (v->n && read_endpoint(skb, d->list.at, 0, v->v6, vip))
		return false;
	if (dr_served && addr_equal(&vip->addr, &v->t.dst)) {
		__builtin_memset(&key.server, 0, sizeof(key.server));
		key.server_port = 0;
	} else if (!v->n) {
		return false;
	}
	key.vip = vip->addr;
	key.vip_port = vip->port;
	d->row = d->ports ? find_kept_row(&key) : find_address_row(&key.vip, &key.server, proto);
	return d->row && d->row->method != SERVER_METHOD_TUNNEL;
}

/* Reports whether a packet has the required tag. A packet of the known flow t needs
 * none if it has no list.
 */
static __always_inline bool direct_admitted(struct __sk_buff *skb, struct scratch *s,
					    const struct direct *d, const struct tuple *t,
					    bool whole)
{
	const struct view *v = &s->outer;
	struct auth_scratch *a;

	if (!auth_policy || (t && !v->n && known(t)))
		return true;
	a = auth_scratch_get();
	if (!a)
		return false;
	auth_packet(a, v, whole);
	a->vip = s->vip;
	s->place = AUTH_OWN;
	return auth_admits(skb, &d->list, &v->t.src, &v->t.dst, AUTH_OWN);
}

/* Returns the backend itself, which a list may also contain, with its port if it has
 * one.
 */
static __always_inline struct endpoint *self_of(struct scratch *s, const struct local_vip *row)
{
	s->self.addr = row->server;
	s->self.port = row->port;
	return &s->self;
}

/* Reports whether the packet's list has another backend of its row's frontend. */
static __always_inline bool direct_more(struct __sk_buff *skb, struct scratch *s,
					const struct direct *d, __u8 proto, bool ports)
{
	if (d->list.n <= 1)
		return false;
	next_of(&s->next, &s->vip, d->row, proto, ports);
	return next_server(skb, &d->list, self_of(s, d->row));
}

static __always_inline int delivered(const struct local_vip *row)
{
	count(row->method == SERVER_METHOD_DR ? SERVER_COUNTER_DR_DELIVERED
					      : SERVER_COUNTER_DSR_NAT_DELIVERED);
	return TC_ACT_UNSPEC;
}

static __noinline int direct(struct __sk_buff *skb, struct scratch *s, enum server_place place)
{
	struct view *v = &s->outer;
	struct direct d = {.ports = true};
	struct next *next = &s->next;
	struct tuple *flow = &s->flow;
	enum verdict verdict;
	bool more;

	if (!find_direct(skb, s, v->t.dport, v->t.proto, &d)) {
		if (v->n)
			return pass(SERVER_COUNTER_PASSED_FOREIGN_OPTION);
		return plain(skb, v, place);
	}
	if (d.row->place != place)
		return not_here(skb, v, place, d.row);
	flow_at(flow, &v->t, d.row);
	if (!direct_admitted(skb, s, &d, flow, !v->fragment))
		return TC_ACT_SHOT;
	more = direct_more(skb, s, &d, v->t.proto, true);
	verdict = decide(flow, v->flags, more, &s->vip, d.row, overhead_own(v->v6), &s->made);
	if (verdict == VERDICT_SEND_ON)
		return send_on(skb, v, next, NULL, place);
	if (verdict != VERDICT_TAKE)
		return refuse(verdict);
	if (strip_list(skb, v) || rewrite(skb, v, SIDE_DST, &flow->dst, flow->dport))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	return delivered(d.row);
}

static __noinline int direct_later(struct __sk_buff *skb, struct scratch *s,
				   enum server_place place)
{
	struct view *v = &s->outer;
	struct direct d = {};
	struct next *next = &s->next;

	if (!find_direct(skb, s, 0, v->t.proto, &d)) {
		if (v->n)
			return pass(SERVER_COUNTER_PASSED_FRAGMENT);
		return plain_later(skb, v, place);
	}
	if (d.row->place != place)
		return not_here(skb, v, place, d.row);
	if (!direct_admitted(skb, s, &d, NULL, false))
		return TC_ACT_SHOT;
	if (fragment_had(v, FRAGMENT_SENT_ON) && direct_more(skb, s, &d, v->t.proto, false))
		return send_on(skb, v, next, NULL, place);
	if (strip_list(skb, v) || rewrite_addr(skb, v, KIND_LATER, SIDE_DST, &d.row->deliver))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	count(SERVER_COUNTER_FRAGMENT_DELIVERED);
	return TC_ACT_UNSPEC;
}

/* Returns the flow that an ICMP error to a backend is about, from the backend's view. */
static __always_inline void flow_of_error(const struct embedded *e, const struct local_vip *row,
					  struct tuple *flow)
{
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->src = e->t.dst;
	flow->dst = row->deliver;
	flow->sport = e->t.dport;
	flow->dport = row->port ?: e->t.sport;
	flow->proto = e->t.proto;
}

/* An ICMP error about a packet that a backend sent. With dsr-nat the load balancer
 * has rewritten the quoted packet. With dr it is as the VIP sent it.
 */
static __noinline int direct_error(struct __sk_buff *skb, struct scratch *s,
				   enum server_place place)
{
	struct view *v = &s->outer;
	struct direct d = {.ports = true};
	struct embedded *e = &s->embedded;
	struct endpoint to = {};
	struct next *next = &s->next;
	struct tuple *flow = &s->flow;
	__u32 gone;

	if (!v->n && !dr_served)
		return plain_error(skb, s, place);
	if (!read_embedded(skb, v, e) || !addr_equal(&e->t.src, &v->t.dst))
		return v->n ? pass(SERVER_COUNTER_PASSED_FOREIGN_ERROR) : TC_ACT_UNSPEC;
	if (!find_direct(skb, s, e->t.sport, e->t.proto, &d)) {
		if (v->n)
			return pass(SERVER_COUNTER_PASSED_FOREIGN_ERROR);
		return plain_error(skb, s, place);
	}
	if (d.row->place != place)
		return not_here(skb, v, place, d.row);
	flow_of_error(e, d.row, flow);
	if (!direct_admitted(skb, s, &d, flow, false))
		return TC_ACT_SHOT;
	if (!known(flow) && direct_more(skb, s, &d, e->t.proto, true))
		return send_on(skb, v, next, e, place);
	gone = v->l4;
	if (strip_list(skb, v))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	gone -= v->l4;
	e->l3 -= gone;
	e->l4 -= gone;
	to.addr = flow->dst;
	to.port = flow->dport;
	if (translate(skb, v, e, SIDE_SRC, &to) ||
	    rewrite_addr(skb, v, KIND_ICMP, SIDE_DST, &to.addr))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	count(SERVER_COUNTER_ERROR_DELIVERED);
	return TC_ACT_UNSPEC;
}

#endif
