/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* dr: sends the frame to the backend's MAC address and leaves the packet unchanged,
 * because the backend has the VIP too. Only second-chance adds an option
 * (dsr_option.h). The packet must not go through the kernel, which would route it to
 * the node that advertises the VIP.
 */
#ifndef FAIRLEAD_BALANCER_DR_H
#define FAIRLEAD_BALANCER_DR_H

#include "dsr_option.h"

static __always_inline int dr(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			      const struct choice *ch, bool v6)
{
	struct dsr_send t = {.dst = p->t.dst, .dport = p->t.dport};
	int verdict;

	/* Without an option nothing proves that the packet is from a load balancer. */
	if (auth_policy ||
	    (f->survival == SURVIVAL_SECOND_CHANCE && needs_dsr_option(p, ch->chain)))
		t.bytes = dsr_option_bytes(ch->chain, v6);
	verdict = plan_dsr_option(ctx, p, ch, &t);
	if (verdict)
		return verdict;
	if (t.way == WAY_KERNEL || ch->hop->beyond)
		return drop(ctx, DROP_NO_NEIGHBOR);
	if (!t.bytes)
		return leave_to(ctx, ch, t.way, v6);
	if (!add_dsr_option(ctx, p, ch, &t, v6))
		return drop(ctx, DROP_NO_HEADROOM);
	return go(t.way, ch->hop->ifindex);
}

#endif
