/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Detects whether a frame passed the programs at its pod's device. A packet socket
 * can bypass them: with PACKET_QDISC_BYPASS (packet(7)) and with AF_XDP in copy mode,
 * the kernel passes a frame directly to the device (net/core/dev.c,
 * __dev_direct_xmit).
 *
 * pod_out stamps the frames it passes, in skb->tc_index. No socket can set that
 * field, and it survives clones and the move to another network namespace, which
 * skb->mark does not. After the device, frames from a pod's socket without the stamp
 * are dropped. All such frames have a socket, whose network namespace identifies the
 * pod. Frames from the wire are stamped by uplink_in. macvlan delivers a pod's
 * broadcasts to the others on the node as clones, which have no socket and pass no
 * uplink, so pod_in requires the stamp.
 */
#ifndef FAIRLEAD_VDN_ORIGIN_H
#define FAIRLEAD_VDN_ORIGIN_H

#include "maps.h"

#define VDN_STAMP 0xfa1e

/* Network namespaces of pods, by cookie (SO_NETNS_COOKIE), and their owners. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, struct vdn_owner);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} vdn_namespaces SEC(".maps");

/* Where a kernel without bpf_get_netns_cookie for tc (before Linux 6.15) stores the
 * cookie: offsets in struct sock and struct net, from its BTF. 0: do not read it.
 */
const volatile __u32 sock_net_at = 0;
const volatile __u32 net_cookie_at = 0;

static __always_inline __u64 read_netns_cookie(struct bpf_sock *sk)
{
	__u64 at = 0, cookie = 0;

	/* The verifier allows no arithmetic on socket pointers. */
	if (bpf_probe_read_kernel(&at, sizeof(at), &sk) ||
	    bpf_probe_read_kernel(&at, sizeof(at), (void *)(at + sock_net_at)) ||
	    bpf_probe_read_kernel(&cookie, sizeof(cookie), (void *)(at + net_cookie_at)))
		return 0;
	return cookie;
}

/* Returns the cookie of the network namespace of a frame's socket, 0 if unknown. */
static __always_inline __u64 netns_cookie(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	__u64 cookie;

	if (!sk)
		return 0;
	cookie = bpf_get_netns_cookie(skb);
	if (!cookie && sock_net_at)
		cookie = read_netns_cookie(sk);
	return cookie;
}

static __always_inline bool is_stamped(struct __sk_buff *skb)
{
	return skb->tc_index == VDN_STAMP;
}

/* Returns the slice whose pod sent a frame that bypassed its device's programs, or 0. */
static __always_inline __u16 bypassing_slice(struct __sk_buff *skb)
{
	__u64 cookie = is_stamped(skb) ? 0 : netns_cookie(skb);
	struct vdn_owner *owner;

	if (!cookie)
		return 0;
	owner = bpf_map_lookup_elem(&vdn_namespaces, &cookie);
	return owner ? owner->slice : 0;
}

static __always_inline void stamp(struct __sk_buff *skb)
{
	skb->tc_index = VDN_STAMP;
	/* A later program that ends the chain sets tc_index from it. */
	skb->tc_classid = VDN_STAMP;
}

#endif
