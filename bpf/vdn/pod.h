/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* At a pod's device: the pod sends only from its own addresses, only to destinations
 * that its slice may reach, and no faster than its rate.
 */
#ifndef FAIRLEAD_VDN_POD_H
#define FAIRLEAD_VDN_POD_H

#include "bucket.h"
#include "error.h"
#include "maps.h"
#include "neighbor.h"
#include "origin.h"

#define POD_ADDRESSES 4

/* The pod's identity: a constant of its programs. */
struct vdn_pod {
	struct addr address[POD_ADDRESSES]; /* unused ones are zero */
	__u8 mac[ETH_ALEN];
	__u16 slice;
	/* Frames of other pods can arrive from below without passing an uplink:
	 * broadcast (macvlan), or all (ipvlan).
	 */
	bool shares_broadcast, shares_all;
};

const volatile struct vdn_pod pod = {};

enum pod_way {
	POD_SENDS,
	POD_RECEIVES,
	POD_WAYS,
};

/* The pod's send and receive rates; pinned, one map per pod. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, enum pod_way);
	__type(value, struct vdn_bucket);
	__uint(max_entries, POD_WAYS);
} pod_buckets SEC(".maps");

struct vdn_pod_count {
	__u64 bytes;
	__u64 drops[VDN_REASONS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, enum pod_way);
	__type(value, struct vdn_pod_count);
	__uint(max_entries, POD_WAYS);
} pod_counts SEC(".maps");

/* Not inlined, so that the verifier of Linux 6.1 does not follow every word of every
 * address at each call.
 */
__noinline bool is_own(const struct addr *a)
{
	if (!a || addr_is_zero(a))
		return false;
	for (int i = 0; i < POD_ADDRESSES; i++) {
		struct addr own = pod.address[i];

		if (addr_equal(a, &own))
			return true;
	}
	return false;
}

static __always_inline bool is_own_mac(const __u8 *mac)
{
	return mac[0] == pod.mac[0] && mac[1] == pod.mac[1] && mac[2] == pod.mac[2] &&
	       mac[3] == pod.mac[3] && mac[4] == pod.mac[4] && mac[5] == pod.mac[5];
}

static __always_inline enum vdn_reason pod_may_talk_to(const struct addr *a)
{
	return may_talk_to(pod.slice, a);
}

static __always_inline enum vdn_reason arp_may(struct __sk_buff *skb, bool sends)
{
	struct addr sender, target;
	struct arp4 arp;

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &arp, sizeof(arp)) ||
	    !arp_is_plain(&arp))
		return VDN_REASON_SPOOFED;
	addr_from_bytes(&sender, arp.sender);
	addr_from_bytes(&target, arp.target);
	if (!sends) /* a probe (RFC 5227) has no sender */
		return addr_to_v4(&sender) ? pod_may_talk_to(&sender) : VDN_FINE;
	if (!is_own_mac(arp.sender_mac) || (addr_to_v4(&sender) && !is_own(&sender)))
		return VDN_REASON_SPOOFED;
	return pod_may_talk_to(&target);
}

/* Reports whether the neighbor discovery that the pod sends is true. Hosts send only
 * one option (RFC 4861, 4.1, 4.3 and 4.4; RFC 7527): more could hide false
 * information, or information for another slice.
 */
static __always_inline enum vdn_reason nd_may_send(struct __sk_buff *skb, const struct nd *nd,
						   const struct addr *src)
{
	__u32 before = nd->type == ND_ROUTER_SOLICIT ? ND_BEFORE_TARGET : sizeof(*nd);
	struct nd_option option;
	struct addr target;

	if (nd->type != ND_ROUTER_SOLICIT && nd->type != ND_SOLICIT && nd->type != ND_ADVERT)
		return VDN_REASON_SPOOFED; /* it is no router */
	if (bpf_ntohs(nd->ip.payload_len) > before - sizeof(nd->ip) + sizeof(option))
		return VDN_REASON_SPOOFED;
	if (!bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + before, &option, sizeof(option)) &&
	    !is_own_mac(option.mac) && (option.type == 1 || option.type == 2))
		return VDN_REASON_SPOOFED;
	if (nd->type == ND_ROUTER_SOLICIT)
		return VDN_FINE;
	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + ND_BEFORE_TARGET, &target,
			       sizeof(target)) ||
	    addr_is_v4(&target))
		return VDN_REASON_SPOOFED;
	if (nd->type == ND_ADVERT || addr_is_zero(src)) /* duplicate address detection */
		return is_own(&target) || is_eui64(&target, pod.mac) ? VDN_FINE
								     : VDN_REASON_SPOOFED;
	return is_link_local(&target) ? VDN_FINE : pod_may_talk_to(&target);
}

static __always_inline enum vdn_reason ipv6_may(struct __sk_buff *skb, bool sends)
{
	struct addr src, dst;
	struct nd nd = {};
	bool neighbors, mld;

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &nd, sizeof(nd.ip)))
		return VDN_REASON_SPOOFED;
	if (nd.ip.nexthdr == IPPROTO_ICMPV6 &&
	    bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + sizeof(nd.ip), &nd.type,
			       sizeof(nd.type)))
		return VDN_REASON_SPOOFED;
	addr_from_v6(&src, &nd.ip.saddr);
	addr_from_v6(&dst, &nd.ip.daddr);
	/* They would be taken for IPv4, which has the same format here. */
	if (addr_is_v4(&src))
		return VDN_REASON_SPOOFED;
	if (addr_is_v4(&dst))
		return sends ? VDN_REASON_OUTSIDE : VDN_REASON_SPOOFED;
	mld = is_mld(skb, &nd.ip);
	neighbors = mld || is_nd(&nd);
	if (!sends)
		return neighbors && (is_link_local(&src) || addr_is_zero(&src))
			       ? VDN_FINE
			       : pod_may_talk_to(&src);
	if (hides_nd(&nd.ip))
		return VDN_REASON_SPOOFED;
	if (!is_own(&src) && !(neighbors && (addr_is_zero(&src) || is_eui64(&src, pod.mac))))
		return is_eui64(&src, pod.mac) ? VDN_REASON_ISOLATED : VDN_REASON_SPOOFED;
	if (mld)
		return VDN_FINE;
	if (neighbors) {
		enum vdn_reason why = nd_may_send(skb, &nd, &src);

		if (why != VDN_FINE || is_link_group(&dst) || is_link_local(&dst))
			return why;
	}
	return pod_may_talk_to(&dst);
}

static __always_inline enum vdn_reason ipv4_may(struct __sk_buff *skb, bool sends)
{
	struct addr src, dst;
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip)))
		return VDN_REASON_SPOOFED;
	addr_from_v4(&src, ip.saddr);
	addr_from_v4(&dst, ip.daddr);
	if (sends && !is_own(&src))
		return VDN_REASON_SPOOFED;
	return pod_may_talk_to(sends ? &dst : &src);
}

/* By the frame, whatever a raw socket declared. Anything other than IP and ARP
 * (including VLANs) has no slice.
 */
static __always_inline enum vdn_reason protocol_may(struct __sk_buff *skb, __be16 proto, bool sends)
{
	switch (skb->vlan_present ? 0 : proto) {
	case bpf_htons(ETH_P_IP):
		return ipv4_may(skb, sends);
	case bpf_htons(ETH_P_IPV6):
		return ipv6_may(skb, sends);
	case bpf_htons(ETH_P_ARP):
		return arp_may(skb, sends);
	}
	return VDN_REASON_ISOLATED;
}

static __always_inline enum vdn_reason pod_may_send(struct __sk_buff *skb)
{
	struct ethhdr eth;

	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) || !is_own_mac(eth.h_source))
		return VDN_REASON_SPOOFED;
	return protocol_may(skb, eth.h_proto, true);
}

/* Reports whether a frame bypassed the programs at its sender's device. A frame only
 * for this pod cannot do so on macvlan: a missing stamp means that something at the
 * uplink removes stamps, which the agent reports.
 */
static __always_inline bool comes_past_checks(struct __sk_buff *skb, const struct ethhdr *eth)
{
	bool shared = eth->h_dest[0] & 1 ? pod.shares_broadcast : pod.shares_all;

	if (is_stamped(skb) || !pod.shares_broadcast)
		return false;
	count_refused(skb->ifindex, pod.slice, shared ? VDN_REASON_BYPASSED : VDN_REASON_UNSTAMPED);
	return shared;
}

static __always_inline enum vdn_reason pod_may_receive(struct __sk_buff *skb)
{
	enum vdn_reason why;
	struct quote q = {};
	struct ethhdr eth;

	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)))
		return VDN_REASON_ISOLATED;
	if (comes_past_checks(skb, &eth))
		return VDN_REASON_SPOOFED;
	why = protocol_may(skb, eth.h_proto, false);
	if (why == VDN_REASON_OUTSIDE && read_quote(skb, &q) && is_own(&q.src))
		return pod_may_talk_to(&q.dst);
	return why;
}

/* As on the wire, where each segment of a bundle has its own headers. */
static __always_inline __u32 wire_bytes(struct __sk_buff *skb)
{
	const __u32 headers =
		sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct tcphdr) + 12;
	__u32 segments = skb->gso_segs;

	return skb->len + (segments > 1 ? (segments - 1) * headers : 0);
}

static __always_inline int pod_pass(struct __sk_buff *skb, enum pod_way way, enum vdn_reason why)
{
	struct vdn_pod_count *count = bpf_map_lookup_elem(&pod_counts, &way);
	struct vdn_bucket *bucket = bpf_map_lookup_elem(&pod_buckets, &way);
	__u32 bytes = wire_bytes(skb);

	if (!count || !bucket)
		return TC_ACT_SHOT;
	if (why == VDN_FINE && bucket_over(bucket, bytes))
		why = VDN_REASON_OVER_RATE;
	if (why < VDN_REASONS) {
		count->drops[why]++;
		return TC_ACT_SHOT;
	}
	count->bytes += bytes;
	if (way == POD_SENDS)
		stamp(skb);
	return TC_ACT_UNSPEC;
}

#endif
