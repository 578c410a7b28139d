/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VLAN tags: IEEE 802.1Q, also inside one of 802.1ad. A tag stays where it is,
 * a part of the Ethernet header, and the packet leaves with it, back to the
 * router that sent it: the kernel's tables cannot be asked for a way within a
 * VLAN that this host need not even have a device for, and that router has the
 * routes to every server. So no way of a tagged packet is in doubt, but `dr`,
 * which needs the server's own MAC address, cannot be had there.
 *
 * A card that takes tags off the frame by itself shows the program none: the
 * agent turns that off (offload.go).
 */
#ifndef FAIRLEAD_BALANCER_VLAN_H
#define FAIRLEAD_BALANCER_VLAN_H

#include "scratch.h"

struct vlan_tag {
	__be16 tci;
	__be16 proto; /* of what follows */
};

/* Reads the Ethernet header, up to two tags with it, and gives what follows;
 * 0 where the frame ends before.
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

/* Loads the Ethernet header, tags and all, into r->l2. */
static __always_inline bool vlan_l2(struct xdp_md *ctx, struct rare *r)
{
	__u32 bytes = within(r->own.l3, 32);

	if (bytes != r->own.l3 || bytes > L2_MAX)
		return false;
	return bpf_xdp_load_bytes(ctx, 0, r->l2, bytes) == 0;
}

/* Back to where it came from. */
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
