/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* At an uplink, and at every device below pods' macvlan devices: selects the HTB
 * class of a packet's slice, checks the slice's permissions, and whether the packet
 * passed the programs at its pod's device. Packets of no slice belong to the node and
 * are ignored.
 */
#ifndef FAIRLEAD_VDN_UPLINK_H
#define FAIRLEAD_VDN_UPLINK_H

#include "error.h"
#include "maps.h"
#include "neighbor.h"
#include "origin.h"

/* Whether this node forwards between slices and other networks: a constant of its
 * programs. On nodes with pods, only the origin of received packets is checked:
 * pod_in does the rest.
 */
const volatile bool gateway = false;

/* HTB uses skb->priority as a class if its upper half is the qdisc's handle. A
 * slice's class is its number + 1.
 */
#define VDN_HTB_MAJOR 0xfa1e

struct ends {
	struct addr src, dst;
	bool ours; /* IP, and no neighbor protocol */
};

static __always_inline void read_ends(struct __sk_buff *skb, struct ends *e)
{
	__be16 proto = 0;
	struct iphdr ip;
	struct nd nd = {};

	bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &proto, sizeof(proto));
	if (skb->vlan_present)
		return;
	if (proto == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip)))
			return;
		addr_from_v4(&e->src, ip.saddr);
		addr_from_v4(&e->dst, ip.daddr);
		e->ours = true;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &nd, sizeof(nd.ip)))
			return;
		bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + sizeof(nd.ip), &nd.type,
				   sizeof(nd.type));
		addr_from_v6(&e->src, &nd.ip.saddr);
		addr_from_v6(&e->dst, &nd.ip.daddr);
		e->ours = !is_nd(&nd) && !is_mld(skb, &nd.ip);
	}
}

static __always_inline int refuse(struct __sk_buff *skb, __u16 slice, enum vdn_reason why)
{
	count_refused(skb->ifindex, slice, why);
	return TC_ACT_SHOT;
}

static __always_inline int uplink(struct __sk_buff *skb, bool leaves)
{
	__u16 bypassing = bypassing_slice(skb);
	struct vdn_owner src, dst, owner;
	enum vdn_reason why;
	struct ends e = {};
	struct quote q = {};

	if (bypassing)
		return refuse(skb, bypassing, VDN_REASON_BYPASSED);
	if (!leaves)
		stamp(skb);
	else if (is_stamped(skb))
		skb->tc_index = 0; /* the node at the other end of a veth sets its own */
	if (!leaves && !gateway)
		return TC_ACT_UNSPEC;
	/* Set by a pod's socket: it would use another slice's class. */
	if (leaves && skb->priority >> 16 == VDN_HTB_MAJOR)
		skb->priority = 0;
	read_ends(skb, &e);
	if (!e.ours)
		return TC_ACT_UNSPEC;
	src = owner_of(&e.src);
	dst = owner_of(&e.dst);
	owner = src.slice ? src : dst;
	if (!owner.slice)
		return TC_ACT_UNSPEC;
	why = src.slice ? judge(src.slice, dst.slice, &e.dst) : judge(dst.slice, 0, &e.src);
	if (why == VDN_REASON_OUTSIDE && !src.slice && read_quote(skb, &q))
		why = may_talk_to(dst.slice, &q.dst);
	if (why != VDN_FINE)
		return refuse(skb, owner.slice, why);
	if (leaves) {
		/* Packets from another domain's slice, which has no rate here, share
		 * the rate of their destination slice.
		 */
		if (!owner.rated && dst.slice)
			owner = dst;
		skb->priority = VDN_HTB_MAJOR << 16 | (owner.slice + 1);
	}
	return TC_ACT_UNSPEC;
}

/* At the node's end of a pod's own veth pair: everything that arrives is from the pod. */
static __always_inline int port(struct __sk_buff *skb)
{
	if (is_stamped(skb))
		return TC_ACT_UNSPEC;
	return refuse(skb, 0, VDN_REASON_BYPASSED);
}

#endif
