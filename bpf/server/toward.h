/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The way toward the server: out of the tunnel or with the option taken off,
 * addressed to the server itself, its VIP remembered; or on to the server that
 * may know the flow.
 */
#ifndef FAIRLEAD_SERVER_TOWARD_H
#define FAIRLEAD_SERVER_TOWARD_H

#include "common.h"
#include "maps.h"
#include "out.h"
#include "read.h"
#include "rewrite.h"

#define SECOND_NS 1000000000ULL

/* What the balancer adds to a packet of this flow at most: the outer header
 * where there is one, and the option.
 */
static __always_inline __u8 overhead(bool tunnel, bool v6)
{
	__u8 header = v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	return OPTION_SIZE(v6) + (tunnel ? header : 0);
}

static __always_inline struct server_flow *find_flow(const struct tuple *flow,
						     const struct addr *vip, __be16 vip_port)
{
	struct server_flow *f = bpf_map_lookup_elem(&server_flows, flow);

	if (!f || f->vip_port != vip_port || !addr_equal(&f->vip, vip))
		return NULL;
	return f;
}

static __always_inline void touch_flow(struct server_flow *f)
{
	__u64 now = bpf_ktime_get_coarse_ns();

	if (now - f->seen > SECOND_NS)
		f->seen = now;
}

static __always_inline void remember_flow(const struct tuple *flow, const struct addr *vip,
					  __be16 vip_port, enum server_method method, __u8 overhead)
{
	struct server_flow f = {
		.vip = *vip,
		.vip_port = vip_port,
		.method = method,
		.overhead = overhead,
		.seen = bpf_ktime_get_coarse_ns(),
	};

	if (!bpf_map_update_elem(&server_flows, flow, &f, BPF_ANY))
		count(SERVER_COUNTER_FLOW_MADE);
}

/* Hands a direct-nat packet from the network to its pod's device, past the
 * node's firewall: its connection tracking never sees the answers, which go
 * straight out, and would call what follows the SYN invalid. What has no way
 * there is left to the kernel.
 */
static __noinline int shortcut(struct __sk_buff *skb, struct view *v)
{
	struct way way = {};

	if (v->p.ttl <= 1 || find_way(skb, v, &v->p.t.src, &v->p.t.dst, &way))
		return TC_ACT_UNSPEC;
	if (rewrite_ttl(skb, v)) {
		count(SERVER_COUNTER_DROPPED_REWRITE);
		return TC_ACT_SHOT;
	}
	count(SERVER_COUNTER_SHORTCUT);
	return take_way(&way);
}

/* A packet as the server itself is addressed. A SYN opens a direct connection:
 * with the same ports as an older flow through the VIP it must not be answered
 * as the VIP. What follows in a direct-nat flow looks the same.
 */
static __always_inline int plain(struct __sk_buff *skb, struct view *v, enum server_place place)
{
	struct server_flow *f;

	if (v->p.flags & TCP_OPENS) {
		if (!bpf_map_delete_elem(&server_flows, &v->p.t))
			count(SERVER_COUNTER_FLOW_FORGOTTEN);
		return TC_ACT_UNSPEC;
	}
	f = bpf_map_lookup_elem(&server_flows, &v->p.t);
	if (!f || f->method != SERVER_METHOD_DIRECT_NAT)
		return TC_ACT_UNSPEC;
	if (place == SERVER_PLACE_HOST)
		return shortcut(skb, v);
	touch_flow(f);
	return TC_ACT_UNSPEC;
}

/* A packet for a server that other programs look after: at the node's way in
 * that is one for a pod.
 */
static __always_inline int not_here(struct __sk_buff *skb, struct view *v, enum server_place place)
{
	return place == SERVER_PLACE_HOST ? shortcut(skb, v) : TC_ACT_UNSPEC;
}

static __always_inline int pass(enum server_counter why)
{
	count(why);
	return TC_ACT_UNSPEC;
}

static __always_inline int drop(enum server_counter why)
{
	count(why);
	return TC_ACT_SHOT;
}

/* Sends a tunnelled packet to the second server, still tunnelled. */
static __always_inline int second_by_tunnel(struct __sk_buff *skb, struct view *outer, bool in)
{
	struct addr to = outer->option.addr;

	if (in && outer->p.ttl <= 1)
		return pass(SERVER_COUNTER_PASSED_TTL);
	if (strip_option(skb, outer) || rewrite_outer_dst(skb, outer, &to) ||
	    (in && rewrite_ttl(skb, outer)))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	return send_to_second(skb, outer, &to);
}

/* Takes a packet out of its tunnel, where its VIP has a server here. */
static __noinline int tunnelled(struct __sk_buff *skb, struct view *outer, struct view *inner,
				enum server_place place)
{
	struct local_vip_key key = {
		.vip = inner->p.t.dst,
		.server = outer->p.t.dst,
		.vip_port = inner->p.t.dport,
		.proto = inner->p.t.proto,
	};
	struct tuple flow = inner->p.t;
	struct local_vip *e = bpf_map_lookup_elem(&local_vips, &key);
	bool opens = inner->p.flags & TCP_OPENS;
	struct server_flow *f;

	if (!e || e->method != SERVER_METHOD_TUNNEL || addr_is_v4(&e->deliver) == inner->v6)
		return pass(SERVER_COUNTER_PASSED_FOREIGN_TUNNEL);
	if (e->place != place)
		return TC_ACT_UNSPEC;
	flow.dst = e->deliver;
	flow.dport = e->port;
	f = find_flow(&flow, &key.vip, key.vip_port);
	if (f)
		touch_flow(f);
	else if (outer->has_option && !opens && key.proto == IPPROTO_TCP)
		return second_by_tunnel(skb, outer, place == SERVER_PLACE_HOST);
	else
		remember_flow(&flow, &key.vip, key.vip_port, SERVER_METHOD_TUNNEL,
			      overhead(true, outer->v6));
	if (strip_outer(skb, outer, inner) || rewrite(skb, inner, SIDE_DST, &e->deliver, e->port))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	/* RFC 6040: congestion met in the tunnel is congestion of the flow. */
	if ((outer->p.tos & 3) == 3)
		bpf_skb_ecn_set_ce(skb);
	count(SERVER_COUNTER_TUNNEL_DELIVERED);
	return TC_ACT_UNSPEC;
}

/* Sends a direct-nat packet to the second server. There is no flow to tell the
 * VIP, but where the target has only one it goes along in the option's place:
 * so the second server's node can answer as the VIP even if it is a reset.
 */
static __always_inline int second_by_nat(struct __sk_buff *skb, struct view *v,
					 const struct local_vip *target, bool in)
{
	struct endpoint to = v->option;
	struct endpoint vip = {.addr = target->deliver, .port = target->port};
	long err;

	if (addr_is_v4(&to.addr) == v->v6)
		return pass(SERVER_COUNTER_PASSED_FOREIGN_OPTION);
	if (in && v->p.ttl <= 1)
		return pass(SERVER_COUNTER_PASSED_TTL);
	if (addr_is_zero(&vip.addr))
		err = strip_option(skb, v);
	else
		err = replace_option(skb, v, &vip);
	if (err || rewrite(skb, v, SIDE_DST, &to.addr, to.port) || (in && rewrite_ttl(skb, v)))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	return send_to_second(skb, v, &to.addr);
}

/* A packet with the option in its own header. The option is the VIP, if it is
 * one that this server stands behind, or else a second chance.
 */
static __noinline int direct_nat(struct __sk_buff *skb, struct view *v, enum server_place place)
{
	struct local_vip_key key = {
		.vip = v->option.addr,
		.server = v->p.t.dst,
		.vip_port = v->option.port,
		.server_port = v->p.t.dport,
		.proto = v->p.t.proto,
	};
	struct local_vip *e = bpf_map_lookup_elem(&local_vips, &key);
	struct server_flow *f;

	if (e) {
		if (e->place != place)
			return not_here(skb, v, place);
		f = find_flow(&v->p.t, &key.vip, key.vip_port);
		if (f)
			touch_flow(f);
		else
			remember_flow(&v->p.t, &key.vip, key.vip_port, SERVER_METHOD_DIRECT_NAT,
				      overhead(false, v->v6));
	} else {
		if (key.proto != IPPROTO_TCP || v->p.flags & TCP_OPENS)
			return pass(SERVER_COUNTER_PASSED_FOREIGN_OPTION);
		__builtin_memset(&key.vip, 0, sizeof(key.vip));
		key.vip_port = 0;
		e = bpf_map_lookup_elem(&local_vips, &key);
		if (!e)
			return pass(SERVER_COUNTER_PASSED_FOREIGN_OPTION);
		if (e->place != place)
			return not_here(skb, v, place);
		f = bpf_map_lookup_elem(&server_flows, &v->p.t);
		if (!f)
			return second_by_nat(skb, v, e, place == SERVER_PLACE_HOST);
		touch_flow(f);
	}
	if (strip_option(skb, v))
		return drop(SERVER_COUNTER_DROPPED_REWRITE);
	count(SERVER_COUNTER_DIRECT_NAT_DELIVERED);
	return TC_ACT_UNSPEC;
}

static __always_inline int toward(struct __sk_buff *skb, enum server_place place)
{
	struct view outer, inner;
	struct cursor c;
	enum kind kind;

	read_begin(skb, &c);
	kind = read_outer(skb, &c, &outer);
	if (kind == KIND_TRANSPORT)
		return outer.has_option ? direct_nat(skb, &outer, place)
					: plain(skb, &outer, place);
	if (kind == KIND_TUNNEL4 || kind == KIND_TUNNEL6) {
		kind = read_inner(skb, &c, outer.l4, kind == KIND_TUNNEL6, &inner);
		if (kind == KIND_TRANSPORT && !inner.has_option)
			return tunnelled(skb, &outer, &inner, place);
	}
	if (kind == KIND_FRAGMENT)
		return pass(SERVER_COUNTER_PASSED_FRAGMENT);
	if (kind == KIND_MALFORMED)
		return pass(SERVER_COUNTER_PASSED_MALFORMED);
	return TC_ACT_UNSPEC;
}

#endif
