/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VLAN tags: IEEE 802.1Q, also inside one of 802.1ad. A tag stays in place as part of
 * the Ethernet header, and the packet leaves with it, back to the router that sent
 * it: the kernel's tables have no routes within a VLAN for which this host may not
 * even have a device, and that router has routes to every backend. So tagged packets
 * need no next hop lookup, but `dr`, which needs the backend's MAC address, does not
 * work there.
 *
 * A NIC that strips tags hides them from the program: the agent disables that
 * (offload.go).
 */
#ifndef FAIRLEAD_BALANCER_VLAN_H
#define FAIRLEAD_BALANCER_VLAN_H

#include "scratch.h"

struct vlan_tag {
	__be16 tci;
	__be16 proto; /* of what follows */
};

/* Reads the Ethernet header with up to two tags. Returns the protocol that follows, 0
 * if the frame is too short.
 */
static __always_inline __be16 vlan_read(struct xdp_md *ctx, struct rare *r)
{
	struct ethhdr eth;
	struct vlan_tag tag;
	__be16 proto;

	r->own.l3 = sizeof(eth);
	r->tagged = false;
	if (bpf_xdp_load_bytes(ctx, 0, &eth, sizeof(eth)))
		return 0;
	proto = eth.h_proto;
	for (int i = 0; i < 2 && is_vlan(proto); i++) {
		if (bpf_xdp_load_bytes(ctx, sizeof(eth) + i * sizeof(tag), &tag, sizeof(tag)))
			return 0;
		r->own.l3 += sizeof(tag);
		r->tagged = true;
		proto = tag.proto;
	}
	return proto;
}

/* Loads the Ethernet header including tags into r->l2. */
static __always_inline bool vlan_l2(struct xdp_md *ctx, struct rare *r)
{
	__u32 bytes = within(r->own.l3, 32);

	if (bytes != r->own.l3 || bytes > L2_MAX)
		return false;
	return bpf_xdp_load_bytes(ctx, 0, r->l2, bytes) == 0;
}

/* Swaps the MAC addresses, to return the frame to its sender. */
static __always_inline void vlan_turn(struct rare *r)
{
	__u8 mac[ETH_ALEN];

	__builtin_memcpy(mac, r->l2, ETH_ALEN);
	__builtin_memcpy(r->l2, r->l2 + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(r->l2 + ETH_ALEN, mac, ETH_ALEN);
}

static __always_inline bool vlan_put(struct xdp_md *ctx, struct rare *r)
{
	__u32 bytes = within(r->own.l3, 32);

	if (bytes != r->own.l3 || bytes > L2_MAX)
		return false;
	return bpf_xdp_store_bytes(ctx, 0, r->l2, bytes) == 0;
}

#endif
