/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The configuration of slices and the counters. bpf2go generates these types for Go
 * (vdn/enforce/kernel).
 */
#ifndef FAIRLEAD_VDN_MAPS_H
#define FAIRLEAD_VDN_MAPS_H

#include "addr.h"
#include "common.h"

/* Why a packet is dropped; VDN_FINE means that it is not. Pods count reasons below
 * VDN_REASONS, which is part of a pinned map's layout. The others are counted in
 * vdn_refused.
 */
enum vdn_reason {
	VDN_REASON_OVER_RATE,
	VDN_REASON_ISOLATED,
	VDN_REASON_OUTSIDE,
	VDN_REASON_SPOOFED,
	VDN_REASONS,
	VDN_REASON_BYPASSED,  /* bypassed the programs at the pod's device */
	VDN_REASON_UNSTAMPED, /* not dropped: arrived without the programs at the uplink */
};
#define VDN_FINE VDN_REASONS

/* The slice of a prefix. rated: the slice has its own rate at uplinks. */
struct vdn_owner {
	__u16 slice;
	__u16 rated;
};

struct vdn_prefix {
	__u32 bits;
	struct addr addr;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct vdn_prefix);
	__type(value, struct vdn_owner);
	__uint(max_entries, 1 << 17);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} vdn_prefixes SEC(".maps");

/* Pairs of slices that may communicate, one row per direction. */
struct vdn_pair {
	__u16 from;
	__u16 to;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct vdn_pair);
	__type(value, __u8);
	__uint(max_entries, 1 << 18);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} vdn_reach SEC(".maps");

/* Addresses outside all slices that a slice may talk to: 1, or 0 for an exception
 * within a wider prefix.
 */
struct vdn_outside_prefix {
	__u32 bits; /* of slice and addr */
	__be32 slice;
	struct addr addr;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct vdn_outside_prefix);
	__type(value, __u8);
	__uint(max_entries, 1 << 17);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} vdn_outside SEC(".maps");

/* Packets rejected at an uplink, or at a pod's device for one of the reasons that it
 * does not count itself.
 */
struct vdn_refused_key {
	__u32 ifindex;
	enum vdn_reason reason;
	__u16 slice;
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__type(key, struct vdn_refused_key);
	__type(value, __u64);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} vdn_refused SEC(".maps");

static __always_inline void count_refused(__u32 ifindex, __u16 slice, enum vdn_reason why)
{
	struct vdn_refused_key k = {.ifindex = ifindex, .slice = slice, .reason = why};
	__u64 *n = bpf_map_lookup_elem(&vdn_refused, &k), one = 1;

	if (n)
		(*n)++;
	else
		bpf_map_update_elem(&vdn_refused, &k, &one, BPF_NOEXIST);
}

/* Zero if no slice owns it. */
static __always_inline struct vdn_owner owner_of(const struct addr *a)
{
	struct vdn_prefix k = {.bits = 128, .addr = *a};
	struct vdn_owner *found = bpf_map_lookup_elem(&vdn_prefixes, &k);

	return found ? *found : (struct vdn_owner){};
}

/* Reports whether a slice may talk to an address, which belongs to the slice `to`, or
 * to none if that is 0. Symmetric, because replies must pass.
 */
static __always_inline enum vdn_reason judge(__u16 slice, __u16 to, const struct addr *a)
{
	struct vdn_outside_prefix out = {.bits = 160, .slice = bpf_htonl(slice), .addr = *a};
	struct vdn_pair pair = {.from = slice, .to = to};
	const __u8 *open;

	if (slice == to)
		return VDN_FINE;
	if (to)
		return bpf_map_lookup_elem(&vdn_reach, &pair) ? VDN_FINE : VDN_REASON_ISOLATED;
	open = bpf_map_lookup_elem(&vdn_outside, &out);
	return open && *open ? VDN_FINE : VDN_REASON_OUTSIDE;
}

/* The same for any address. */
static __always_inline enum vdn_reason may_talk_to(__u16 slice, const struct addr *a)
{
	return judge(slice, owner_of(a).slice, a);
}

#endif
