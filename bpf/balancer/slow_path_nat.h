/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* nat and fullnat for slow path packets: the counterpart of nat.h, in both
 * directions. In an ICMP error the quoted packet is translated to what its sender
 * knows. The error's own source stays the router's, except for fullnat backends,
 * which know only our address, and if it is the backend itself, which the client does
 * not know.
 */
#ifndef FAIRLEAD_BALANCER_SLOW_PATH_NAT_H
#define FAIRLEAD_BALANCER_SLOW_PATH_NAT_H

#include "nat.h"
#include "slow_path_send.h"
#include "syn_maps.h"

/* Rewrites r->from to r->to in the packet's own headers, or in those it quotes. */
static __always_inline bool slow_turn(struct xdp_md *ctx, struct rare *r, bool src)
{
	if (r->is_error)
		return icmp_turn(ctx, r, src, true) == 0;
	return edit(ctx, r, &r->own) == 0;
}

static __always_inline int slow_nat_on(struct xdp_md *ctx, struct rare *r, const struct choice *ch,
				       __be16 own_port)
{
	enum way way = slow_way(ctx, r, ch, r->p.len);
	bool full = own_port;

	if (way_leads_nowhere(way))
		return slow_nowhere(ctx, r, way);
	r->from = r->p.t;
	r->to = r->p.t;
	r->to.dst = ch->server->addr;
	r->to.dport = nat_server_port(ch->server, r->p.t.dport);
	if (full) {
		r->to.src = r->v6 ? set.own6 : set.own4;
		r->to.sport = own_port;
	}
	if (!slow_turn(ctx, r, full))
		return drop(ctx, edit_refusal(r));
	return slow_leave(ctx, r, ch->hop->macs, ch->hop->ifindex, way);
}

/* Forwards from the client to the backend of the flow with this index and tag. */
__noinline int slow_nat(struct xdp_md *ctx, struct rare *r, const struct frontend *f, __u32 index,
			__u64 tag)
{
	struct choice ch;
	__be16 own_port;

	if (!r || !f)
		return XDP_ABORTED;
	r->more = 0;
	if (!nat_own_port(index, tag, &own_port))
		return drop(ctx, DROP_FLOW_BUSY);
	if (!choice_of(&ch, &r->pick))
		return drop(ctx, DROP_NO_BACKEND);
	return slow_counted(r, f, &ch, slow_nat_on(ctx, r, &ch, own_port));
}

/* Finds the flow to which r->p is a reply. Returns its index, with the client's view
 * in r->to, or NAT_NO_ANSWER.
 */
__noinline int slow_find_answer(struct xdp_md *ctx, struct rare *r)
{
	__u32 now = flow_now();
	struct flow_data *data;
	struct flow_ref ref = {};
	__u8 proto;

	if (!ctx || !r)
		return NAT_NO_ANSWER;
	proto = r->p.t.proto;
	data = r->v6 ? nat_find_answer(&ref, &r->p, proto, now, true)
		     : nat_find_answer(&ref, &r->p, proto, now, false);
	if (!data && syn_set.active) {
		proto |= FLOW_PROXIED;
		data = r->v6 ? nat_find_answer(&ref, &r->p, proto, now, true)
			     : nat_find_answer(&ref, &r->p, proto, now, false);
		r->proxied = true;
	}
	if (!data)
		return NAT_NO_ANSWER;
	r->to = r->p.t;
	r->to.src = data->vip;
	r->to.dst = data->client;
	r->to.sport = data->vip_port;
	r->to.dport = data->client_port;
	if (!flow_holds(&ref))
		return NAT_NO_ANSWER;
	if (!r->is_error && !r->proxied && r->p.ttl > 1) /* else it is dropped */
		flow_touch_answer(&ref, &r->p, now);
	return ref.index;
}

/* Finds the next hop to the client. */
static __always_inline enum way slow_way_back(struct xdp_md *ctx, struct rare *r,
					      struct nat_scratch *s, __u32 index)
{
	__u32 mtu = 0;
	enum way way;

	if (r->tagged) {
		if (bpf_check_mtu(ctx, 0, &mtu, 0, 0) < 0)
			return WAY_NO_ROUTE;
		r->mtu = mtu;
		return r->p.len > mtu ? WAY_TOO_BIG : WAY_BACK;
	}
	s->to = r->to;
	way = nat_ask_back(ctx, index, r->p.len, r->v6);
	r->mtu = s->d.fib.mtu_result;
	return way;
}

/* Forwards from the backend to the client. NAT_NO_ANSWER if it is no flow's reply. */
__noinline int slow_answer(struct xdp_md *ctx, struct rare *r)
{
	struct nat_scratch *s = nat_scratch_get();
	struct flow_data *data;
	int index;
	enum way way;
	bool hide;

	if (!r || !s)
		return NAT_NO_ANSWER;
	index = slow_find_answer(ctx, r);
	data = index >= 0 ? flow_data_at(index) : NULL;
	if (!data)
		return NAT_NO_ANSWER;
	if (r->p.ttl <= 1)
		return drop(ctx, DROP_TTL_EXPIRED);
	r->is_answer = true;
	r->more = 0;
	way = slow_way_back(ctx, r, s, index);
	if (way_leads_nowhere(way))
		return slow_nowhere(ctx, r, way);
	if (r->proxied && !r->is_error) /* it exceeded the MTU before */
		return r->tagged ? drop(ctx, DROP_SYN_ODD) : TO_SYN;
	r->from = r->p.t;
	hide = addr_equal(&r->sender, &r->from.src);
	if (!slow_turn(ctx, r, hide))
		return drop(ctx, edit_refusal(r));
	return slow_leave(ctx, r, data->macs, data->egress & 0xffffff, way);
}

#endif
