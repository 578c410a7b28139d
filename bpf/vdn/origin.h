/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Did a frame pass the programs at its pod's device? A packet socket can skip
 * them: with PACKET_QDISC_BYPASS (packet(7)) and with AF_XDP in copy mode, the
 * kernel hands a frame to the device itself (net/core/dev.c, __dev_direct_xmit).
 *
 * pod_out stamps what it passes, in skb->tc_index. No socket can set that field, and
 * it survives clones and the move to another network namespace, which skb->mark does
 * not. Behind the device, frames of a pod's socket without the stamp are dropped. All
 * such frames have a socket; the socket's network namespace tells that it is a
 * pod's. Frames from the wire are stamped by uplink_in: macvlan hands broadcast of
 * one pod to the others on the node as clones, which have no socket and pass no
 * uplink, so pod_in demands the stamp.
 */
#ifndef FAIRLEAD_VDN_ORIGIN_H
#define FAIRLEAD_VDN_ORIGIN_H

#include "maps.h"

#define VDN_STAMP 0xfa1e

/* Pods' network namespaces, by their cookies (SO_NETNS_COOKIE), and whose they are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, struct vdn_owner);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} vdn_namespaces SEC(".maps");

/* Where a kernel without bpf_get_netns_cookie for tc (before Linux 6.15) keeps the
 * cookie: offsets in struct sock and struct net, of its BTF. 0: do not look.
 */
const volatile __u32 sock_net_at = 0;
const volatile __u32 net_cookie_at = 0;

static __always_inline __u64 read_netns_cookie(struct bpf_sock *sk)
{
	__u64 at = 0, cookie = 0;

	/* The verifier allows no arithmetic on pointers to sockets. */
	if (bpf_probe_read_kernel(&at, sizeof(at), &sk) ||
	    bpf_probe_read_kernel(&at, sizeof(at), (void *)(at + sock_net_at)) ||
	    bpf_probe_read_kernel(&cookie, sizeof(cookie), (void *)(at + net_cookie_at)))
		return 0;
	return cookie;
}

/* The cookie of the network namespace of a frame's socket; 0 where that is unknown. */
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

/* The slice whose pod sent a frame past its device's programs; 0: it did not. */
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
	/* A program after this one that ends the chain sets tc_index from it. */
	skb->tc_classid = VDN_STAMP;
}

#endif
