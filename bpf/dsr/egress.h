/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Transmits by the kernel's routes but bypasses its firewall and source checks, which
 * would reject a VIP as a foreign source.
 */
#ifndef FAIRLEAD_DSR_EGRESS_H
#define FAIRLEAD_DSR_EGRESS_H

#include "common.h"
#include "maps.h"
#include "skb/read.h"
#include "skb/fib_redirect.h"

/* Sends a packet already addressed to the next backend. A host without forwarding has
 * no route for a received packet, which then goes back out of its ingress device.
 */
static __noinline int send_to_second(struct __sk_buff *skb, const struct view *v,
				     const struct addr *to)
{
	struct way way = {};
	long err = find_way(skb, v, &v->t.src, to, 0, &way);

	if (err == BPF_FIB_LKUP_RET_FWD_DISABLED) {
		count(SERVER_COUNTER_SECOND_CHANCE);
		return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
	}
	if (err) {
		count(SERVER_COUNTER_DROPPED_NO_WAY_TO_SECOND);
		return TC_ACT_SHOT;
	}
	count(SERVER_COUNTER_SECOND_CHANCE);
	return take_way(&way);
}

#endif
