/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The last step of a packet, whose entry is in s->made. The rewritten packet
 * continues in the kernel, which routes it and shows its firewall a flow that it can
 * track; or it goes straight out. That is needed for packets that the kernel would
 * take for a spoofed source (received with its own address as the source), and thus
 * for all packets of such flows, in both directions. Packets between the node and
 * itself turn around at the device that leads to the service: each side sees that
 * one.
 */
#ifndef FAIRLEAD_PROXY_EGRESS_H
#define FAIRLEAD_PROXY_EGRESS_H

#include "proxy/reply.h"
#include "proxy/rewrite.h"
#include "proxy/fragment.h"
#include "proxy/scratch.h"
#include "skb/fib_redirect.h"

#define LOOPBACK_IFINDEX 1

/* The MAC address of each device with the programs; zeros if it has none. */
struct packet_mac {
	__u8 mac[ETH_ALEN];
	__u8 zero[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct packet_mac);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} packet_macs SEC(".maps");

/* Packets of the node's own clients already have a route, to the service. */
static __always_inline bool goes_straight(__u8 kind)
{
	return kind & PACKET_FLOW_MASKED ||
	       (kind & (PACKET_FLOW_OWN | PACKET_FLOW_BRIDGED) && !(kind & PACKET_FLOW_ANSWER));
}

/* Reports whether an entry's packets are rewritten at this place. Replies for other
 * clients are rewritten last, on their way out.
 */
static __always_inline bool is_place_of(__u8 kind, enum place place)
{
	bool leaving;

	if (kind & PACKET_FLOW_ANSWER)
		leaving = !(kind & (PACKET_FLOW_MASKED | PACKET_FLOW_OWN)) ||
			  kind & PACKET_FLOW_LOOPED;
	else
		leaving = kind & PACKET_FLOW_OWN;
	return leaving == (place == PLACE_LEAVING);
}

/* Returns the length of the longest packet in a frame. The kernel needs it, because
 * on its own it would count an Ethernet header where the other device has none.
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

static __always_inline int no_way(long why, enum kind kind)
{
	if (why != BPF_FIB_LKUP_RET_FRAG_NEEDED || kind != KIND_TRANSPORT)
		return drop(PACKET_COUNTER_DROPPED_NO_WAY);
	count(PACKET_COUNTER_TOO_BIG);
	return ANSWER_TOO_BIG;
}

static __always_inline long change_any(struct __sk_buff *skb, struct scratch *s, enum kind kind)
{
	const struct packet_flow *f = &s->made;

	return kind == KIND_TRANSPORT ? change(skb, &s->view, f)
				      : change_addrs(skb, &s->view, kind, &f->src, &f->dst);
}

/* All fragments of a packet go where it is fragmented, because connection tracking
 * reassembles them there.
 */
static __always_inline void remember_cut(struct scratch *s, enum kind kind)
{
	if (!s->view.fragment || kind != KIND_TRANSPORT)
		return;
	s->made.kind |= PACKET_FLOW_CUT;
	remember_fragment(s);
}

/* Sends through the kernel, which fragments: on the loopback device, where the node's
 * own source address is accepted (accept_local).
 */
static __always_inline int take_way_to_be_cut(struct __sk_buff *skb)
{
	struct ethhdr eth = {.h_proto = skb->protocol};

	if (bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	return bpf_redirect(LOOPBACK_IFINDEX, BPF_F_INGRESS);
}

static __noinline int leave_straight(struct __sk_buff *skb, struct scratch *s, enum kind kind)
{
	const struct view *v = &s->view;
	struct packet_flow *f = &s->made;
	bool own = f->kind & PACKET_FLOW_OWN, cut = f->kind & PACKET_FLOW_CUT;
	long err = find_way(skb, v, &f->src, &f->dst, longest(skb, v), &s->way);

	if (err == BPF_FIB_LKUP_RET_FRAG_NEEDED && !may_not_fragment(skb, v))
		cut = true;
	else if (err)
		return no_way(err, kind);
	if (!own && v->ttl <= 1) {
		count(PACKET_COUNTER_EXPIRED);
		return kind == KIND_TRANSPORT ? ANSWER_EXPIRED : TC_ACT_SHOT;
	}
	if (cut)
		remember_cut(s, kind);
	if (change_any(skb, s, kind) || (!own && !cut && rewrite_ttl(skb, v)))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	/* The kernel removes an Ethernet header before it adds one. */
	if (!s->l3 && bpf_skb_change_head(skb, sizeof(struct ethhdr), 0))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	return cut ? take_way_to_be_cut(skb) : take_way(&s->way);
}

/* The reply to a client on this node comes from the service, so from the device that
 * leads to it: a node with strict source checks (rp_filter) would not accept it from
 * the endpoint's device.
 */
static __noinline int leave_inward(struct __sk_buff *skb, struct scratch *s)
{
	const struct packet_flow *f = &s->made;
	const struct packet_mac *m;
	struct ethhdr eth = {};

	if (find_way(skb, &s->view, &f->dst, &f->src, ANY_LENGTH, &s->way) ||
	    s->way.ifindex == skb->ifindex)
		return TC_ACT_UNSPEC;
	m = bpf_map_lookup_elem(&packet_macs, &s->way.ifindex);
	if (!m)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(eth.h_dest, m->mac, sizeof(eth.h_dest));
	eth.h_proto = skb->protocol;
	if ((!s->l3 && bpf_skb_change_head(skb, sizeof(eth), 0)) ||
	    bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	return bpf_redirect(s->way.ifindex, BPF_F_INGRESS);
}

/* Sends the packet on with the rewrite in s->made. */
static __noinline int leave_changed(struct __sk_buff *skb, struct scratch *s, enum kind kind)
{
	__u8 of = s->made.kind;

	if (!(of & PACKET_FLOW_LOOPED) && goes_straight(of))
		return leave_straight(skb, s, kind);
	if (change_any(skb, s, kind))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	if (of & PACKET_FLOW_LOOPED)
		return bounce(skb, s);
	if ((of & (PACKET_FLOW_OWN | PACKET_FLOW_ANSWER)) == (PACKET_FLOW_OWN | PACKET_FLOW_ANSWER))
		return leave_inward(skb, s);
	return TC_ACT_UNSPEC;
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
	return leave_changed(skb, s, KIND_TRANSPORT);
}

/* A later fragment. */
static __noinline int leave_later(struct __sk_buff *skb, struct scratch *s)
{
	if (!find_fragment(s))
		return s->place == PLACE_LEAVING ? TC_ACT_UNSPEC
						 : pass(PACKET_COUNTER_PASSED_FRAGMENT);
	count(PACKET_COUNTER_FRAGMENT);
	return leave_changed(skb, s, KIND_LATER);
}

#endif
