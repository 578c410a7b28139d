/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets addressed to a VIP but to none of its frontends: another port or protocol.
 * The surrounding routers route them here and our own routes send them back, so
 * through the kernel they would loop until their TTL expires. They are dropped. Slow
 * path packets are first examined by the slow_path program.
 *
 * Packets that cannot loop go to the kernel: those for the host itself (if a VIP is
 * an address of this host, its ssh must continue to work), those it would not
 * forward, and those whose TTL expires here.
 */
#ifndef FAIRLEAD_BALANCER_NO_FRONTEND_H
#define FAIRLEAD_BALANCER_NO_FRONTEND_H

#include "count.h"
#include "egress.h"
#include "maps.h"

/* Looks up the entry of the whole address, which every VIP has. */
static __always_inline bool is_vip(const struct addr *dst)
{
	struct frontend_key key = {.vip = *dst};

	return bpf_map_lookup_elem(&frontends, &key);
}

/* Reports whether the kernel would deliver it locally or at least not forward it. */
static __always_inline bool stays_here(struct xdp_md *ctx, struct bpf_fib_lookup *fib,
				       const struct addr *src, const struct addr *dst, bool v6)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = ctx->ingress_ifindex;
	fib_set_addrs(fib, src, dst, v6);
	switch (bpf_fib_lookup(ctx, fib, sizeof(*fib), 0)) {
	case BPF_FIB_LKUP_RET_NOT_FWDED: /* local, or no route */
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return true;
	}
	return false;
}

static __always_inline int unserved_to(struct xdp_md *ctx, const struct addr *src,
				       const struct addr *dst, bool v6)
{
	struct bpf_fib_lookup fib;

	if (!is_vip(dst) || stays_here(ctx, &fib, src, dst, v6))
		return XDP_PASS;
	return drop(ctx, DROP_NO_FRONTEND);
}

static __noinline int unserved_v4(struct xdp_md *ctx)
{
	struct addr src, dst;
	struct iphdr *ip;
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	if (!parse_eth(&c))
		return XDP_PASS;
	ip = parse_ipv4(&c);
	if (!ip || ip->ttl <= 1)
		return XDP_PASS;
	addr_from_v4(&src, ip->saddr);
	addr_from_v4(&dst, ip->daddr);
	return unserved_to(ctx, &src, &dst, false);
}

/* Reports neighbor discovery, including unicast solicitations. No router forwards it
 * (RFC 4861, 6.1 and 7.1: the hop limit is 255).
 */
static __always_inline bool is_neighbor_discovery(struct cursor *c, const struct ipv6hdr *ip)
{
	const __u8 router_solicitation = 133, redirect = 137;
	__u8 *type;

	if (ip->nexthdr != IPPROTO_ICMPV6 || ip->hop_limit != 255)
		return false;
	type = cursor_take(c, sizeof(*type));
	return type && *type >= router_solicitation && *type <= redirect;
}

static __noinline int unserved_v6(struct xdp_md *ctx)
{
	struct addr src, dst;
	struct ipv6hdr *ip;
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	if (!parse_eth(&c))
		return XDP_PASS;
	ip = parse_ipv6(&c);
	if (!ip || ip->hop_limit <= 1 || is_neighbor_discovery(&c, ip))
		return XDP_PASS;
	addr_from_v6(&src, &ip->saddr);
	addr_from_v6(&dst, &ip->daddr);
	return unserved_to(ctx, &src, &dst, true);
}

#endif
