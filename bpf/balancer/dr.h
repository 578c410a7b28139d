/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* dr: the frame goes to the server's own MAC address, the packet stays as it
 * is: the VIP is the server's, too. Only where there is a second chance it is
 * told of it (dsr_option.h). No way leads by the kernel, which would send the packet
 * to where the VIP is announced from.
 */
#ifndef FAIRLEAD_BALANCER_DR_H
#define FAIRLEAD_BALANCER_DR_H

#include "dsr_option.h"

static __always_inline int dr(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			      const struct choice *ch, bool v6)
{
	struct telling t = {.dst = p->t.dst, .dport = p->t.dport};
	int verdict;

	/* Without an option nothing says that the packet is from a balancer. */
	if (auth_policy || (f->survival == SURVIVAL_SECOND_CHANCE && tells(p, ch->chain)))
		t.bytes = tell_bytes(ch->chain, v6);
	verdict = tell_plan(ctx, p, ch, &t);
	if (verdict)
		return verdict;
	if (t.way == WAY_KERNEL || ch->cpu->beyond)
		return drop(ctx, DROP_NO_NEIGHBOUR);
	if (!t.bytes)
		return leave_to(ctx, ch, t.way, v6);
	if (!tell(ctx, p, ch, &t, v6))
		return drop(ctx, DROP_NO_HEADROOM);
	return go(t.way, ch->cpu->ifindex);
}

#endif
