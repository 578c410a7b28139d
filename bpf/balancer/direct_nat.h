/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* dsr-nat: rewrites the destination to the backend. The packet carries what the
 * backend's node needs to restore the VIP in replies (dsr_option.h).
 */
#ifndef FAIRLEAD_BALANCER_DIRECT_NAT_H
#define FAIRLEAD_BALANCER_DIRECT_NAT_H

#include "rewrite.h"
#include "dsr_option.h"

/* Returns the transport header after an option of this size. */
static __always_inline void *direct_nat_after_option(struct xdp_md *ctx, __u32 bytes, bool v6)
{
	void *l3 = (void *)(long)ctx->data + sizeof(struct ethhdr);

	return l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) + (bytes & 0x7c);
}

/* Writes the backend's address into a header without growing it. Returns the
 * transport header, or NULL.
 */
static __always_inline void *direct_nat_plain(struct xdp_md *ctx, const struct addr *dst,
					      __u64 diff, bool v6)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *l3 = data + sizeof(struct ethhdr);

	if (v6) {
		struct ipv6hdr *ip = l3;

		if ((void *)(ip + 1) > end)
			return NULL;
		addr_copy(&ip->daddr, dst);
		return ip + 1;
	}
	struct iphdr *ip = l3;

	if ((void *)(ip + 1) > end)
		return NULL;
	ip->daddr = addr_to_v4(dst);
	ip->check = csum_apply(ip->check, diff);
	return ip + 1;
}

static __always_inline int direct_nat(struct xdp_md *ctx, const struct packet *p,
				      const struct frontend *f, const struct choice *ch, bool v6)
{
	struct dsr_send t = {.dst = ch->server->addr};
	__u16 bytes = p->len - (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	__be16 port = f->flags & FRONTEND_KEEP_PORT ? p->t.dport : ch->server->port;
	__u64 diff;
	int verdict;
	void *l4 = NULL;

	if (needs_dsr_option(p, ch->chain))
		t.bytes = dsr_option_bytes(ch->chain, v6);
	t.dport = port;
	verdict = plan_dsr_option(ctx, p, ch, &t);
	if (verdict)
		return verdict;
	diff = csum_diff_addr(0, &p->t.dst, &t.dst, v6);
	if (!t.bytes)
		l4 = direct_nat_plain(ctx, &t.dst, diff, v6);
	else if (add_dsr_option(ctx, p, ch, &t, v6))
		l4 = direct_nat_after_option(ctx, t.bytes, v6);
	if (!l4 || !rewrite_dport(l4, (void *)(long)ctx->data_end, &p->t, port, diff, bytes))
		return drop(ctx, DROP_NO_HEADROOM);
	return t.bytes ? go(t.way, ch->hop->ifindex) : leave_to(ctx, ch, t.way, v6);
}

#endif
