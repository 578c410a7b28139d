/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet of no known flow: finds its service, the endpoint to serve it, and the
 * source that the endpoint sees.
 */
#ifndef FAIRLEAD_PROXY_NEW_FLOW_H
#define FAIRLEAD_PROXY_NEW_FLOW_H

#include "proxy/choose.h"
#include "proxy/find.h"
#include "proxy/flow.h"
#include "proxy/conntrack_compat.h"
#include "proxy/egress.h"
#include "proxy/scratch.h"

#ifndef EEXIST
#define EEXIST 17
#endif

/* Ports of this node reserved for masked flows. The agent sets a range outside
 * net.ipv4.ip_local_port_range.
 */
volatile const __u16 mask_first = 1024;
volatile const __u16 mask_count = 28976;

#define MASK_TRIES 64

/* The source that an endpoint sees for a masked flow, by the device that leads to it;
 * 0: for any other device.
 */
struct packet_mask {
	struct addr v4, v6; /* zeros: no mask */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct packet_mask);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} packet_masks SEC(".maps");

/* The bridge of each port whose bridge does not use the firewall: replies go directly
 * between ports there, so requests must too. Otherwise connection tracking would see
 * half a connection and call it invalid.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} packet_bridges SEC(".maps");

static __noinline bool is_on_one_bridge(struct __sk_buff *skb, struct scratch *s)
{
	__u32 port = skb->ifindex;
	const __u32 *bridge = bpf_map_lookup_elem(&packet_bridges, &port);

	return bridge && !find_way(skb, &s->view, &s->view.t.src, &s->made.dst, 0, &s->way) &&
	       s->way.ifindex == *bridge;
}

/* Finds the service that a packet addresses and copies it to s->service. */
static __noinline bool find_asked(struct scratch *s)
{
	const struct tuple *t = &s->view.t;

	s->asked.addr = t->dst;
	s->asked.port = t->dport;
	s->asked.proto = t->proto;
	s->asked.zero = 0;
	if (find_service(&s->asked, &s->service))
		return true;
	return is_node_address(&s->asked.addr) && find_node_port(&s->asked, &s->service);
}

static __always_inline struct run *run_of(struct scratch *s, bool inside)
{
	return inside ? &s->service.inside : &s->service.outside;
}

/* Reports whether a flow's endpoint still belongs to its service. */
static __noinline bool is_served(struct scratch *s, const struct packet_flow *f)
{
	return find_asked(s) && keeps(run_of(s, f->from_inside), &f->dst, f->dport);
}

/* Adds the endpoint's half of s->made. -EEXIST: another flow looks the same to the
 * endpoint.
 */
static __noinline int claim(struct scratch *s)
{
	const struct tuple *t = &s->view.t;
	const struct packet_flow *held = &s->held;
	bool same;
	int err;

	other_half(&s->key, &s->made, t->proto);
	turn_round(&s->back, &s->made, t);
	err = enter_flow(&s->key, &s->back, BPF_NOEXIST);
	if (err != -EEXIST)
		return err;
	if (find_flow(&s->key, &s->held)) {
		same = addr_equal(&held->src, &s->back.src) &&
		       addr_equal(&held->dst, &s->back.dst) && held->sport == s->back.sport &&
		       held->dport == s->back.dport;
		if (!same && !flow_over(held))
			return err;
	}
	forget_flow(&s->key);
	return enter_flow(&s->key, &s->back, BPF_ANY);
}

static long claim_any_port(__u32 i __attribute__((unused)), void *context __attribute__((unused)))
{
	struct scratch *s = scratch();

	if (!s)
		return 1;
	s->made.sport =
		bpf_htons(mask_first + (__u16)((__u64)bpf_get_prandom_u32() * mask_count >> 32));
	s->result = -claim(s);
	return s->result != EEXIST;
}

/* Gives the flow a port that makes it unique to its endpoint: the client's own if
 * possible.
 */
static __noinline int claim_port(struct scratch *s)
{
	s->result = EEXIST;
	if (!(s->made.kind & PACKET_FLOW_MASKED))
		s->result = -claim(s);
	if (s->result == EEXIST)
		bpf_loop(MASK_TRIES, claim_any_port, NULL, 0);
	return s->result;
}

/* Makes the flow come from this node's own address. An endpoint on the node itself
 * replies by the node's own routes, and needs no mask.
 */
static __noinline int mask(struct __sk_buff *skb, struct scratch *s)
{
	const struct view *v = &s->view;
	const struct packet_mask *m;
	const struct addr *a;
	__u32 any = 0;
	long err = find_way(skb, v, &v->t.src, &s->made.dst, ANY_LENGTH, &s->way);

	if (err == BPF_FIB_LKUP_RET_NOT_FWDED)
		return TC_ACT_UNSPEC;
	if (err)
		return drop(PACKET_COUNTER_DROPPED_NO_WAY);
	m = bpf_map_lookup_elem(&packet_masks, &s->way.ifindex);
	a = m ? (v->v6 ? &m->v6 : &m->v4) : NULL;
	if (!a || addr_is_zero(a)) {
		m = bpf_map_lookup_elem(&packet_masks, &any);
		a = m ? (v->v6 ? &m->v6 : &m->v4) : NULL;
	}
	if (!a || addr_is_zero(a))
		return drop(PACKET_COUNTER_DROPPED_NO_SOURCE);
	s->made.src = *a;
	s->made.kind |= PACKET_FLOW_MASKED;
	return TC_ACT_UNSPEC;
}

/* Adds the flow in s->made, or finds the one that another CPU has added meanwhile. */
static __noinline int remember_flow(struct scratch *s)
{
	const struct packet_flow *held = &s->held;
	int err = claim_port(s);

	if (err)
		return drop(err == EEXIST ? PACKET_COUNTER_DROPPED_NO_PORT
					  : PACKET_COUNTER_DROPPED_FLOWS_FULL);
	err = enter_flow(&s->view.t, &s->made, BPF_NOEXIST);
	if (err == -EEXIST) {
		if (find_flow(&s->view.t, &s->held)) {
			if (held->sport != s->made.sport || held->dport != s->made.dport ||
			    !addr_equal(&held->dst, &s->made.dst))
				bpf_map_delete_elem(&packet_flows, &s->key);
			s->made = *held;
			return TC_ACT_UNSPEC;
		}
		err = enter_flow(&s->view.t, &s->made, BPF_ANY);
	}
	if (err)
		return drop(PACKET_COUNTER_DROPPED_FLOWS_FULL);
	count(PACKET_COUNTER_FLOW_MADE);
	count_connection(&s->service);
	return TC_ACT_UNSPEC;
}

/* A segment that opens nothing. The kernel answers for the node's own addresses. For
 * others nobody would, except for a connection that another proxy translates.
 * Outgoing packets have already been translated by it.
 */
static __always_inline int stray(struct __sk_buff *skb, struct scratch *s)
{
	const struct view *v = &s->view;

	if (v->flags & VIEW_RESET || s->service.kind == SERVICE_NODE_PORT ||
	    is_node_address(&v->t.dst) || (s->place != PLACE_LEAVING && is_foreign(skb, s)))
		return pass(PACKET_COUNTER_PASSED_STRAY);
	count(PACKET_COUNTER_RESET);
	return ANSWER_RESET;
}

/* A connection that bypasses the service must not be answered as the service because
 * of an older flow on the same ports. Unless that flow is over, this SYN may be
 * forged with the client's address: the endpoint's reply decides (RFC 5961, 4).
 */
static __noinline int not_ours(struct __sk_buff *skb, struct scratch *s)
{
	const struct tuple *t = &s->view.t;
	struct packet_flow *f;

	if (s->place == PLACE_LEAVING || !(s->view.flags & VIEW_OPENS))
		return TC_ACT_UNSPEC;
	s->key.src = t->dst;
	s->key.dst = t->src;
	s->key.sport = t->dport;
	s->key.dport = t->sport;
	s->key.proto = t->proto;
	__builtin_memset(s->key.zero, 0, sizeof(s->key.zero));
	f = find_flow(&s->key, &s->held);
	if (f && s->held.kind & PACKET_FLOW_LOOPED)
		return TC_ACT_UNSPEC; /* it is this flow's packet */
	if (f && !flow_over(&s->held)) {
		f->opened = opening_digest(opening_number(skb, &s->view));
		f->state |= PACKET_FLOW_DOUBTED;
	} else {
		forget_flow(&s->key);
	}
	return TC_ACT_UNSPEC;
}

/* For this node's own clients. An endpoint in the node's own network would see the
 * client's address, which is its own, and reply without passing any device: so it
 * sees the service as the source.
 */
static __always_inline int own(struct __sk_buff *skb, struct scratch *s, bool local)
{
	struct packet_flow *f = &s->made;

	f->kind = PACKET_FLOW_OWN;
	if (local && find_way(skb, &s->view, &f->src, &f->dst, ANY_LENGTH, &s->way) ==
			     BPF_FIB_LKUP_RET_NOT_FWDED) {
		f->kind |= PACKET_FLOW_LOOPED;
		f->src = s->view.t.dst;
	}
	return TC_ACT_UNSPEC;
}

/* Chooses an endpoint and sets the packet's rewrite in s->made. */
static __noinline int choose_for(struct __sk_buff *skb, struct scratch *s, const struct run *r)
{
	const struct tuple *t = &s->view.t;
	const struct target *target;
	struct packet_flow *f = &s->made;
	bool local = true;

	s->client.client = t->src;
	s->client.id = s->service.id;
	s->client.kind = CLIENT_ADDRESS;
	__builtin_memset(s->client.zero, 0, sizeof(s->client.zero));
	if (!choose_target(r, s->service.affinity, &s->client, &s->chosen))
		return drop(PACKET_COUNTER_DROPPED_NO_WAY);
	if (addr_is_v4(&s->chosen.addr) == s->view.v6)
		return drop(PACKET_COUNTER_DROPPED_WRONG_FAMILY);
	__builtin_memset(f, 0, sizeof(*f));
	f->src = t->src;
	f->sport = t->sport;
	f->dst = s->chosen.addr;
	f->dport = s->chosen.port;
	f->seen = flow_clock();
	f->from_inside = s->place != PLACE_OUTSIDE;
	if (s->place != PLACE_INSIDE) {
		target = find_in_run(r, &f->dst, f->dport);
		local = target && target->local;
	}
	if (s->place == PLACE_LEAVING)
		return own(skb, s, local);
	if (!local || addr_equal(&f->dst, &f->src))
		return mask(skb, s);
	if (s->place == PLACE_INSIDE && is_on_one_bridge(skb, s))
		f->kind = PACKET_FLOW_BRIDGED;
	return TC_ACT_UNSPEC;
}

/* Rejects a client because no endpoint can serve it. */
static __always_inline int refuse(struct scratch *s)
{
	count(PACKET_COUNTER_REFUSED);
	return s->view.t.proto == IPPROTO_TCP ? ANSWER_RESET : ANSWER_UNREACHABLE;
}

/* Serves the first packet of a flow. A packet for no service continues. */
static __always_inline int begin(struct __sk_buff *skb, struct scratch *s)
{
	bool inside = s->place != PLACE_OUTSIDE;
	enum service_empty empty;
	const struct run *r;
	int verdict;

	if (!find_asked(s))
		return not_ours(skb, s);
	if (!is_allowed(&s->service, &s->view.t.src))
		return drop(PACKET_COUNTER_DROPPED_SOURCE_RANGE);
	if (s->view.t.proto == IPPROTO_TCP && !(s->view.flags & VIEW_OPENS))
		return stray(skb, s);
	r = run_of(s, inside);
	empty = inside ? s->service.inside_empty : s->service.outside_empty;
	if (!r->count)
		return empty == EMPTY_DROPPED ? drop(PACKET_COUNTER_DROPPED_NO_LOCAL) : refuse(s);
	verdict = choose_for(skb, s, r);
	if (verdict == TC_ACT_UNSPEC)
		verdict = remember_flow(s);
	return verdict == TC_ACT_UNSPEC ? leave(skb, s) : verdict;
}

#endif
