/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XDP sees every frame that a device receives, including those for other hosts if the
 * switch floods or the device is promiscuous. The kernel drops these later
 * (PACKET_OTHERHOST), so only frames for this host are balanced.
 */
#ifndef FAIRLEAD_BALANCER_MAC_H
#define FAIRLEAD_BALANCER_MAC_H

#include "common.h"
#include "trace_event.h"

/* MAC addresses that a device accepts: its own, and those of devices on top of it
 * (VLANs, macvlans, a bond, a bridge). A device that the agent has configured also
 * has the entry 01:00:00:00:00:00, which is no host's. On any other device, such as
 * one that has just joined a bond, no frame is rejected.
 */
struct device_mac {
	__u32 ifindex;
	__u8 mac[ETH_ALEN];
	__u8 zero[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct device_mac);
	__type(value, __u8);
} device_macs SEC(".maps");

/* A device's own MAC address, without hashing: indexed by the last bits of the
 * device's index, in the format of mac_word. If two devices collide, the one without
 * an entry here is found in device_macs.
 */
#define OWN_MACS 64

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWN_MACS);
	__type(key, __u32);
	__type(value, __u64);
} own_macs SEC(".maps");

/* The address, first byte lowest, and 16 bits of the device's index. */
static __always_inline __u64 mac_word(__u32 ifindex, const __u8 *mac)
{
	__u32 low;
	__u16 high;

	__builtin_memcpy(&low, mac, sizeof(low));
	__builtin_memcpy(&high, mac + sizeof(low), sizeof(high));
	return low | (__u64)high << 32 | (__u64)ifindex << 48;
}

__noinline bool is_for_upper_device(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct device_mac key = {.ifindex = ctx->ingress_ifindex, .mac = {1}};

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end || eth->h_dest[0] & 1)
		return false;
	if (!bpf_map_lookup_elem(&device_macs, &key))
		return true;
	__builtin_memcpy(key.mac, eth->h_dest, ETH_ALEN);
	if (bpf_map_lookup_elem(&device_macs, &key))
		return true;
	trace_event(TRACE_MAC, 0, trace_mac(key.mac));
	return false;
}

/* Reports whether a frame is for this host only. */
static __always_inline bool is_for_us(struct xdp_md *ctx, const struct ethhdr *eth)
{
	__u32 slot = ctx->ingress_ifindex & (OWN_MACS - 1);
	__u64 *own = bpf_map_lookup_elem(&own_macs, &slot);

	return likely(own && *own == mac_word(ctx->ingress_ifindex, eth->h_dest)) ||
	       is_for_upper_device(ctx);
}

#endif
