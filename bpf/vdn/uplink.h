/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* At an uplink: whose a packet is, for HTB, and whether its slice may. What is of
 * no slice is the node's own, and none of our business.
 */
#ifndef FAIRLEAD_VDN_UPLINK_H
#define FAIRLEAD_VDN_UPLINK_H

#include "error.h"
#include "maps.h"
#include "neighbour.h"

/* HTB takes skb->priority for a class where its upper half is the qdisc's
 * handle; a slice's class is its number and one.
 */
#define VDN_HTB_MAJOR 0xfa1e

struct ends {
	struct addr src, dst;
	bool ours; /* IP, and no neighbours' business */
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
	struct vdn_refused_key k = {.ifindex = skb->ifindex, .slice = slice, .reason = why};
	__u64 *n = bpf_map_lookup_elem(&vdn_refused, &k), one = 1;

	if (n)
		(*n)++;
	else
		bpf_map_update_elem(&vdn_refused, &k, &one, BPF_NOEXIST);
	return TC_ACT_SHOT;
}

static __always_inline int uplink(struct __sk_buff *skb, bool leaves)
{
	struct vdn_owner src, dst, owner;
	enum vdn_reason why;
	struct ends e = {};
	struct quote q = {};

	/* What a socket of a pod has said: it would send by another slice's class. */
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
		/* What comes from a slice of another domain, which has no rate here, shares
		 * that of the slice that it goes to.
		 */
		if (!owner.rated && dst.slice)
			owner = dst;
		skb->priority = VDN_HTB_MAJOR << 16 | (owner.slice + 1);
	}
	return TC_ACT_UNSPEC;
}

#endif
