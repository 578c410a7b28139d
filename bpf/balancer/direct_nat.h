/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* direct-nat: the destination becomes the server. What the server's node has to
 * know, to put the VIP back into the answers, is told in the packet (tell.h).
 */
#ifndef FAIRLEAD_BALANCER_DIRECT_NAT_H
#define FAIRLEAD_BALANCER_DIRECT_NAT_H

#include "rewrite.h"
#include "tell.h"

static __always_inline bool direct_nat_tell(struct xdp_md *ctx, const struct packet *p,
					    const struct choice *ch, const struct telling *t,
					    const struct tuple *to, bool v6)
{
	__u64 diff = rewrite_diff(&p->t, to, v6);
	void *l4 = v6 ? tell_v6(ctx, p, ch, t) : tell_v4(ctx, p, ch, t);
	__u16 bytes = p->len - (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	return l4 && rewrite_l4(l4, (void *)(long)ctx->data_end, &p->t, to, diff, bytes);
}

static __always_inline int direct_nat(struct xdp_md *ctx, const struct packet *p,
				      const struct frontend *f, const struct choice *ch, bool v6)
{
	struct telling t = {.dst = ch->server->addr};
	struct tuple to = p->t;
	int verdict;

	if (tells(p, ch))
		t.bytes = option_bytes(1 + chain_length(ch->chain), v6);
	verdict = tell_plan(ctx, p, ch, &t);
	if (verdict)
		return verdict;
	to.dst = ch->server->addr;
	if (!(f->flags & FRONTEND_KEEP_PORT))
		to.dport = ch->server->port;
	if (t.bytes)
		return direct_nat_tell(ctx, p, ch, &t, &to, v6) ? go(t.way, ch->cpu->ifindex)
								: drop(ctx, DROP_NO_ROOM);
	if (!rewrite(ctx, p, &to, v6))
		return drop(ctx, DROP_NO_ROOM);
	return leave_to(ctx, ch, t.way, v6);
}

#endif
