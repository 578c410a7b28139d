/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Handover of slow path packets and packets that exceed the path MTU when handed
 * over: the slow path counterpart of handover.h. Not within a VLAN, where draining
 * load balancers are not queried.
 */
#ifndef FAIRLEAD_BALANCER_SLOW_PATH_HANDOVER_H
#define FAIRLEAD_BALANCER_SLOW_PATH_HANDOVER_H

#include "handover.h"
#include "slow_path_send.h"

/* Returns PACKET_ASK or PACKET_LAST if the frame was handed to us, else 0. */
static __always_inline __u8 slow_handed(void)
{
	struct handover *h = handover_scratch_get();
	__u8 on;

	if (!h)
		return 0;
	on = h->on;
	h->on = 0;
	return on;
}

/* Forwards a packet of an unknown flow to the next load balancer. */
__noinline int slow_ask(struct xdp_md *ctx, struct rare *r)
{
	struct handover *h = handover_scratch_get();
	struct choice ch;

	if (!r || !h)
		return XDP_ABORTED;
	if (!r->handed && !handover_begin(h))
		return drop(ctx, DROP_NO_BACKEND);
	handover_choice(h, &ch, &r->p.t);
	r->pick.hash = ch.hash;
	r->gue = false;
	return slow_tunnel_any(ctx, r, ch.server, ch.hop, ch.chain);
}

#endif
