/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* second-chance: decides whether a packet is for the backend it was sent to, or for
 * one in its list.
 */
#ifndef FAIRLEAD_DSR_SECOND_CHANCE_H
#define FAIRLEAD_DSR_SECOND_CHANCE_H

#include "auth.h"
#include "common.h"
#include "flows.h"
#include "option_list.h"
#include "skb/read.h"
#include "sources.h"

enum verdict {
	VERDICT_TAKE,
	VERDICT_SEND_ON,
	VERDICT_COLLISION, /* the backend has a flow on these ports through another VIP */
	VERDICT_FULL,
	VERDICT_DENIED, /* the client is outside the frontend's source ranges */
};

/* Returns the maximum overhead that the load balancer adds: the outer header, if any,
 * and the longest list.
 */
static __always_inline __u8 overhead_tunnel(bool gue, bool v6)
{
	__u32 header = v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (!gue)
		return header + option_bytes_of(ENDPOINTS_MAX - 1, auth_policy, v6);
	return header + sizeof(struct udphdr) + sizeof(struct gue) +
	       gue_list_bytes_of(ENDPOINTS_MAX - 1, auth_policy, v6);
}

static __always_inline __u8 overhead_own(bool v6)
{
	if (auth_policy) /* IPv4 has room for one fewer */
		return option_bytes_tagged(v6 ? ENDPOINTS_MAX : ENDPOINTS_MAX - 1, v6);
	return option_bytes(ENDPOINTS_MAX, v6);
}

/* Returns a packet's flow from its backend's view. */
static __always_inline void flow_at(struct tuple *flow, const struct tuple *t,
				    const struct local_vip *row)
{
	addr_copy_aligned(&flow->src, &t->src);
	addr_copy_aligned(&flow->dst, &row->deliver);
	flow->sport = t->sport;
	flow->dport = row->port ?: t->dport;
	flow->proto = t->proto;
	__builtin_memset(flow->zero, 0, sizeof(flow->zero));
}

static __always_inline __u8 state_of(__u8 flags)
{
	return (flags & VIEW_FIN ? FLOW_CLIENT_FIN : 0) |
	       (flags & VIEW_RESET ? FLOW_CLIENT_RESET : 0);
}

static __always_inline bool is_by(const struct server_flow *f, const struct endpoint *vip)
{
	return f->vip_port == vip->port && addr_equal(&f->vip, &vip->addr);
}

/* Most packets continue a flow that is known here and are accepted without further
 * checks. more: another backend may know the flow too, and is tried if this one has
 * reset it.
 */
static __always_inline bool goes_on(const struct tuple *t, __u8 flags, bool more,
				    const struct endpoint *vip)
{
	struct found r;

	if (!find_flow(&r, t) || flags & VIEW_OPENS || (more && r.flow->state & FLOW_RESET) ||
	    !is_by(r.flow, vip) || !flow_holds(&r))
		return false;
	touch_flow(r.flow, flow_clock());
	trace_flow(r.flow, t, FLOW_CONFIRMED | state_of(flags));
	return true;
}

/* Accepts a packet that opens a flow, or that no other backend may know. made is the
 * new entry.
 */
__noinline enum verdict begin(const struct tuple *t, __u8 flags, bool more,
			      const struct endpoint *vip, struct server_flow *made)
{
	bool opens = flags & VIEW_OPENS, same;
	__u32 now = flow_clock();
	struct server_flow *f;
	struct found r;

	if (!t || !vip || !made)
		return VERDICT_FULL;
	find_flow(&r, t);
	f = r.flow;
	same = f && is_by(f, vip);
	if (same && opens && flow_alive(f, now)) { /* retransmitted */
		touch_flow(f, now);
		unnote_flow(f, t, FLOW_DOUBTED); /* a SYN-ACK now is for the VIP */
		return VERDICT_TAKE;
	}
	if (!opens && more)
		return VERDICT_SEND_ON;
	if (f && !same && !flow_yields(f, now))
		return VERDICT_COLLISION;
	made->vip = vip->addr;
	made->vip_port = vip->port;
	made->client = t->src;
	made->server = t->dst;
	made->client_port = t->sport;
	made->server_port = t->dport;
	made->proto = t->proto;
	made->state = (opens ? FLOW_OPENED : 0) | state_of(flags);
	made->seen = now;
	return remember_flow(made, t) ? VERDICT_TAKE : VERDICT_FULL;
}

/* Decides about a packet for the backend in row. t is its flow from the backend's
 * view.
 */
static __always_inline enum verdict decide(const struct tuple *t, __u8 flags, bool more,
					   const struct endpoint *vip, const struct local_vip *row,
					   __u8 overhead, struct server_flow *made)
{
	if (sources_limited && source_denied(t, vip, row))
		return VERDICT_DENIED;
	if (goes_on(t, flags, more, vip))
		return VERDICT_TAKE;
	__builtin_memset(made, 0, sizeof(*made));
	made->method = row->method;
	made->place = row->place;
	made->overhead = overhead;
	return begin(t, flags, more, vip, made);
}

static __always_inline int refuse(enum verdict why)
{
	switch (why) {
	case VERDICT_COLLISION:
		return drop(SERVER_COUNTER_DROPPED_COLLISION);
	case VERDICT_DENIED:
		return drop(SERVER_COUNTER_DROPPED_SOURCE_DENIED);
	default:
		return drop(SERVER_COUNTER_DROPPED_FLOWS_FULL);
	}
}

/* The same for an ICMP error about a flow's packet, which opens nothing. */
static __always_inline bool known(const struct tuple *t)
{
	struct found r;

	return find_flow(&r, t);
}

#endif
