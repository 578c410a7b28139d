/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The service proxy for packets, at tc on all devices of a node. It handles packets
 * from the network (node ports, external and load balancer addresses, cluster
 * addresses routed here) and packets that pods and the node itself send to services
 * without a translated socket (SCTP, raw sockets, virtual machines, services with
 * source ranges).
 *
 *           uplink                                 veth of a pod
 *   client ───► from_outside ───► kernel ──────────────────► pod
 *   client ◄─── leaving ◄──────── kernel ◄── from_inside ◄── pod
 *
 *   client ───► from_outside ──────► out through leaving's device ──► another node
 *   client ◄─────────────────── from_outside ◄───────────────── its pod
 *
 * A client's packet is addressed to an endpoint where it arrives, before the kernel
 * routes it. The reply gets the service's address where it leaves. So the node's
 * firewall and connection tracking see one flow between client and endpoint. An
 * endpoint on another node sees this node as the client, and the program itself
 * forwards these packets and their replies.
 *
 * All other packets continue unmodified, also to other programs at the same hook: the
 * verdict is TC_ACT_UNSPEC ("no opinion").
 */
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#include "proxy/reply.h"
#include "proxy/new_flow.h"
#include "proxy/count.h"
#include "proxy/error.h"
#include "proxy/egress.h"
#include "proxy/scratch.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Parses the frame. It is linearized only if it cannot be read as it is: most
 * outgoing packets have only their headers in the linear part.
 */
static __always_inline enum kind read_frame(struct __sk_buff *skb, struct view *v, __u32 l3)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	enum kind kind;

	if (!v6 && skb->protocol != bpf_htons(ETH_P_IP))
		return KIND_FOREIGN;
	kind = read_ip(skb, v, l3, v6);
	if (kind == KIND_MALFORMED && reach(skb, HEADERS_MAX))
		kind = read_ip(skb, v, l3, v6);
	return kind;
}

/* Reports whether a client's packet of a known flow goes to the flow's endpoint. A
 * packet that opens a connection may follow an older one on the same ports. Datagrams
 * have no connection, so they move when their endpoint is removed.
 */
static __always_inline bool goes_on(struct scratch *s, struct packet_flow *f)
{
	const struct view *v = &s->view;
	struct packet_flow *copy = &s->made;
	bool seen_later;

	if (copy->kind & PACKET_FLOW_ANSWER) {
		note_packet(f, copy, v);
		return true;
	}
	if (v->flags & VIEW_OPENS) {
		if (flow_over(copy) || !is_served(s, copy))
			return false;
		undoubt_flow(copy, &v->t);
	}
	seen_later = note_packet(f, copy, v);
	return v->t.proto != IPPROTO_UDP || !seen_later || is_served(s, copy);
}

/* Reports whether a reply is to a SYN that bypassed the service. If the endpoint
 * accepts it, the flow's connection no longer exists, and the flow is deleted.
 */
static __always_inline bool is_past_answer(struct __sk_buff *skb, const struct view *v,
					   const struct packet_flow *f)
{
	__u32 number;

	if (!(f->kind & PACKET_FLOW_ANSWER) || !(f->state & PACKET_FLOW_DOUBTED) ||
	    !answers_attempt(skb, v, &number) || f->opened != opening_digest(number))
		return false;
	if (ends_older(skb, v))
		forget_flow(&v->t);
	return true;
}

static __always_inline int transport(struct __sk_buff *skb, struct scratch *s)
{
	struct packet_flow *f = find_flow(&s->view.t, &s->made);

	if (f) {
		if (!is_place_of(s->made.kind, s->place))
			return TC_ACT_UNSPEC;
		if (is_past_answer(skb, &s->view, &s->made))
			return TC_ACT_UNSPEC;
		if (goes_on(s, f))
			return leave(skb, s);
		forget_flow(&s->view.t);
		count(PACKET_COUNTER_FLOW_MOVED);
	}
	/* Outgoing packets were checked where they came in, unless the node sent them. */
	if (s->place == PLACE_LEAVING && skb->ingress_ifindex)
		return TC_ACT_UNSPEC;
	return begin(skb, s);
}

static __always_inline int serve(struct __sk_buff *skb, struct scratch *s)
{
	switch (read_frame(skb, &s->view, s->l3)) {
	case KIND_TRANSPORT:
		return transport(skb, s);
	case KIND_LATER:
		return leave_later(skb, s);
	case KIND_ICMP:
		return about_flow(skb, s);
	case KIND_MALFORMED:
		return pass(PACKET_COUNTER_PASSED_MALFORMED);
	default:
		return TC_ACT_UNSPEC;
	}
}

static __always_inline int meet(struct __sk_buff *skb, enum place place, __u32 l3)
{
	struct scratch *s = scratch();
	int verdict;

	/* Tagged packets are handled at the VLAN's own device. */
	if (!s || skb->vlan_present)
		return TC_ACT_UNSPEC;
	s->place = place;
	s->l3 = l3;
	verdict = serve(skb, s);
	return verdict < ANSWER_RESET ? verdict : give_answer(skb, s, verdict);
}

SEC("tc")
int from_outside(struct __sk_buff *skb)
{
	/* For another host on this network, perhaps a macvlan. */
	if (skb->pkt_type == PACKET_OTHERHOST)
		return TC_ACT_UNSPEC;
	return meet(skb, PLACE_OUTSIDE, sizeof(struct ethhdr));
}

SEC("tc")
int from_inside(struct __sk_buff *skb)
{
	return meet(skb, PLACE_INSIDE, sizeof(struct ethhdr));
}

SEC("tc")
int leaving(struct __sk_buff *skb)
{
	return meet(skb, PLACE_LEAVING, sizeof(struct ethhdr));
}

/* The same for devices without Ethernet headers: WireGuard, IP tunnels. */
SEC("tc")
int from_outside_bare(struct __sk_buff *skb)
{
	return meet(skb, PLACE_OUTSIDE, 0);
}

SEC("tc")
int leaving_bare(struct __sk_buff *skb)
{
	return meet(skb, PLACE_LEAVING, 0);
}
