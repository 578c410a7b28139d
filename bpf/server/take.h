/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The second chance: is a packet for the server that it came to, or for one
 * that its list names?
 */
#ifndef FAIRLEAD_SERVER_TAKE_H
#define FAIRLEAD_SERVER_TAKE_H

#include "common.h"
#include "flows.h"
#include "list.h"
#include "read.h"

enum verdict {
	VERDICT_TAKE,
	VERDICT_SEND_ON,
	VERDICT_COLLISION, /* the server has a flow of these ports by another VIP */
	VERDICT_FULL,
};

/* What the balancer adds to a packet at most: the outer header where there is
 * one, and the longest list.
 */
static __always_inline __u8 overhead_tunnel(bool gue, bool v6)
{
	__u32 header = v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (!gue)
		return header + option_bytes(ENDPOINTS_MAX - 1, v6);
	return header + sizeof(struct udphdr) + sizeof(struct gue) +
	       gue_list_bytes(ENDPOINTS_MAX - 1, v6);
}

static __always_inline __u8 overhead_own(bool v6)
{
	return option_bytes(ENDPOINTS_MAX, v6);
}

static __always_inline __u8 state_of(__u8 flags)
{
	return (flags & VIEW_FIN ? FLOW_CLIENT_FIN : 0) | (flags & VIEW_RESET ? FLOW_RESET : 0);
}

/* A flow that is known here is taken, so is one that opens, and one that nobody
 * else may know. made has the VIP, the method and the overhead; it becomes the
 * flow that is remembered.
 */
__noinline enum verdict decide(const struct tuple *t, __u8 flags, bool more,
			       struct server_flow *made)
{
	bool opens = flags & VIEW_OPENS, same;
	__u32 now = flow_clock();
	struct server_flow *f;

	if (!t || !made)
		return VERDICT_FULL;
	f = find_flow(t);
	same = f && f->vip_port == made->vip_port && addr_equal(&f->vip, &made->vip);
	if (same && !opens && !(more && f->state & FLOW_RESET)) {
		touch_flow(f, now);
		note_flow(f, FLOW_CONFIRMED | state_of(flags));
		return VERDICT_TAKE;
	}
	if (same && opens && flow_alive(f, now)) { /* sent again */
		touch_flow(f, now);
		return VERDICT_TAKE;
	}
	if (!opens && more)
		return VERDICT_SEND_ON;
	if (f && !same && flow_alive(f, now))
		return VERDICT_COLLISION;
	made->client = t->src;
	made->server = t->dst;
	made->client_port = t->sport;
	made->server_port = t->dport;
	made->proto = t->proto;
	made->state = (opens ? FLOW_OPENED : 0) | state_of(flags);
	made->seen = now;
	return remember_flow(made, t) ? VERDICT_TAKE : VERDICT_FULL;
}

static __always_inline int refuse(enum verdict why)
{
	return drop(why == VERDICT_COLLISION ? SERVER_COUNTER_DROPPED_COLLISION
					     : SERVER_COUNTER_DROPPED_FLOWS_FULL);
}

/* The same for an ICMP error about a flow's packet: it opens nothing. */
static __always_inline bool known(const struct tuple *t)
{
	return find_flow(t) != NULL;
}

#endif
