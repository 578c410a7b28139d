/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Transmission: the next hop comes from the kernel's routes and neighbors, queried
 * before anything is rewritten. A backend's next hop is cached until the agent sees a
 * change, and for one clock tick without an agent. If they give no immediate answer (an
 * unresolved neighbor, a backend on this host, an interface that is not ours), the
 * rewritten packet goes up the kernel stack with the MAC addresses and TTL it arrived
 * with.
 */
#ifndef FAIRLEAD_BALANCER_EGRESS_H
#define FAIRLEAD_BALANCER_EGRESS_H

#include "address_hop.h"
#include "choose.h"
#include "count.h"
#include "csum.h"
#include "maps.h"
#include "trace_event.h"

enum way {
	WAY_KERNEL,
	WAY_BACK,     /* out of the ingress interface */
	WAY_ACROSS,   /* out of another interface of ours */
	WAY_TOO_BIG,  /* none: exceeds the MTU */
	WAY_NO_ROUTE, /* none: forbidden */
};

/* Not XDP verdicts: the slow path program receives the unmodified packet. */
#define TO_SLOW_PATH (-1)
#define TO_SLOW_PATH_TOO_BIG (-2) /* exceeds the path MTU */

/* A packet's new layer 3 and 4 fields, and their next hop. */
struct departure {
	struct tuple to;
	struct bpf_fib_lookup fib;
};

static __always_inline void fib_set_addrs(struct bpf_fib_lookup *fib, const struct addr *src,
					  const struct addr *dst, bool v6)
{
	fib->family = v6 ? AF_INET6 : AF_INET;
	if (!v6) {
		fib->ipv4_src = addr_to_v4(src);
		fib->ipv4_dst = addr_to_v4(dst);
		return;
	}
	__builtin_memcpy(fib->ipv6_src, src, sizeof(*src));
	__builtin_memcpy(fib->ipv6_dst, dst, sizeof(*dst));
}

/* Queries the kernel's tables with the prepared request. */
static __always_inline enum way fib_way(struct xdp_md *ctx, struct bpf_fib_lookup *fib)
{
	fib->ifindex = ctx->ingress_ifindex;
	int answer = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);

	trace_event(TRACE_ASK, answer, fib->mtu_result);
	switch (answer) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		trace_event(TRACE_NEXT_HOP, fib->ifindex, trace_mac(fib->dmac));
		break;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return WAY_TOO_BIG;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return WAY_NO_ROUTE;
	default:
		return WAY_KERNEL;
	}
	if (fib->ifindex == ctx->ingress_ifindex)
		return WAY_BACK;
	return bpf_map_lookup_elem(&tx_ports, &fib->ifindex) ? WAY_ACROSS : WAY_KERNEL;
}

/* Finds the next hop to d->to for a packet of len bytes at layer 3. */
static __always_inline enum way find_way(struct xdp_md *ctx, struct departure *d, __u32 len,
					 bool v6)
{
	struct bpf_fib_lookup *fib = &d->fib;

	if (len > 0xffff)
		return WAY_TOO_BIG;
	__builtin_memset(fib, 0, sizeof(*fib));
	fib_set_addrs(fib, &d->to.src, &d->to.dst, v6);
	fib->l4_protocol = d->to.proto;
	fib->sport = d->to.sport;
	fib->dport = d->to.dport;
	fib->tot_len = len;
	return fib_way(ctx, fib);
}

/* Until when (bpf_ktime_get_coarse_ns) the agent watches the kernel's routes, neighbors
 * and devices, and a number that it changes with them, a multiple of 2^16: added to a
 * backend's generation, which counts in steps of one.
 */
volatile __u64 routes_watched SEC(".data.routes") = 0;
volatile __u32 routes_version SEC(".data.routes") = 0;

/* For how many clock ticks a next hop is cached at most: for changes that the kernel does
 * not report, such as a path MTU.
 */
#define WAY_TICKS 64

static __always_inline enum way way_of(struct xdp_md *ctx, const struct next_hop *hop)
{
	return hop->ifindex == ctx->ingress_ifindex ? WAY_BACK : WAY_ACROSS;
}

/* Finds the next hop of a backend whose own is not cached: that of its address, or the
 * kernel's answer. Caches the result, except one that may soon improve. It applies to any
 * length, because the MTU is cached too. Returns enum way. Global, so that the verifier
 * checks it once and not per call.
 */
__noinline int way_ask(struct xdp_md *ctx, const struct server *server, struct next_hop *c)
{
	__u32 version = routes_version; /* before the query */
	struct bpf_fib_lookup fib = {};
	enum way way;
	bool v6;

	if (!server || !c)
		return WAY_NO_ROUTE;
	if (server->frontend && address_hop_copy(ctx, server, c, version))
		return way_of(ctx, c);
	v6 = !addr_is_v4(&server->addr);
	c->tick = 0;
	if (v6)
		fib_set_addrs(&fib, &set.own6, &server->addr, true);
	else
		fib_set_addrs(&fib, &set.own4, &server->addr, false);
	way = fib_way(ctx, &fib);
	if (way != WAY_BACK && way != WAY_ACROSS)
		return way;
	c->generation = server->generation + version;
	c->ingress = ctx->ingress_ifindex;
	c->ifindex = fib.ifindex;
	c->mtu = fib.mtu_result;
	/* The kernel replaces the backend's address with the router's. */
	c->beyond = v6 ? __builtin_memcmp(fib.ipv6_dst, &server->addr, sizeof(server->addr)) != 0
		       : fib.ipv4_dst != addr_to_v4(&server->addr);
	__builtin_memcpy(c->macs, fib.dmac, ETH_ALEN);
	__builtin_memcpy(c->macs + ETH_ALEN, fib.smac, ETH_ALEN);
	c->tick = bpf_jiffies64();
	if (bpf_ktime_get_coarse_ns() < routes_watched)
		c->tick += WAY_TICKS;
	if (server->frontend)
		address_hop_put(server, c, version);
	return way;
}

static __always_inline bool way_is_kept(struct xdp_md *ctx, const struct choice *ch)
{
	return next_hop_is_kept(ctx, ch->hop, ch->server->generation + routes_version);
}

/* The same on the fast path. Entries of backends of frontends that track flows are too many
 * for the CPU's caches.
 */
static __always_inline bool way_is_near(struct xdp_md *ctx, struct choice *ch)
{
	struct next_hop *hop = NULL;

	if (ch->server->frontend)
		hop = address_hop_get(ctx, ch->server, routes_version);
	if (!hop)
		return way_is_kept(ctx, ch);
	ch->hop = hop;
	return true;
}

/* Returns the way to the chosen backend for any packet. way_fits checks its length. */
static __always_inline enum way way_to(struct xdp_md *ctx, const struct choice *ch)
{
	if (likely(way_is_kept(ctx, ch)))
		return way_of(ctx, ch->hop);
	return way_ask(ctx, ch->server, ch->hop);
}

/* The kernel itself fragments or sends the ICMP error. */
static __always_inline bool way_fits(enum way way, const struct choice *ch, __u32 len)
{
	return len <= (way == WAY_KERNEL ? 0xffff : ch->hop->mtu);
}

static __always_inline bool way_leads_nowhere(enum way way)
{
	return way == WAY_TOO_BIG || way == WAY_NO_ROUTE;
}

static __always_inline int drop_way(struct xdp_md *ctx, enum way way)
{
	return drop(ctx, way == WAY_TOO_BIG ? DROP_TOO_BIG : DROP_NO_ROUTE);
}

/* Copies both MAC addresses of an Ethernet header in words. */
static __always_inline void macs_copy(void *to, const void *from)
{
#pragma unroll
	for (int i = 0; i < 2 * ETH_ALEN / 4; i++)
		((__u32 *)to)[i] = ((const __u32 *)from)[i];
}

/* An interface outside tx_ports accepts no redirects. Packets back to it fall back to
 * XDP_TX, which does not lose them (attach.go).
 */
static __always_inline int go(enum way way, __u32 ifindex)
{
	if (way == WAY_KERNEL)
		return XDP_PASS;
	if (way == WAY_BACK && !back_by_redirect)
		return XDP_TX;
	return bpf_redirect_map(&tx_ports, ifindex, way == WAY_BACK ? XDP_TX : XDP_DROP);
}

/* The last step: sets the next hop's MAC addresses and decrements the TTL. */
static __always_inline int leave_by(struct xdp_md *ctx, const void *macs, __u32 ifindex,
				    enum way way, bool v6)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

	if (way == WAY_KERNEL)
		return XDP_PASS;
	if (data + sizeof(*eth) + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return drop(ctx, DROP_NO_HEADROOM);
	if (v6)
		((struct ipv6hdr *)(eth + 1))->hop_limit--;
	else
		ipv4_decrement_ttl((struct iphdr *)(eth + 1));
	macs_copy(eth, macs);
	return go(way, ifindex);
}

static __always_inline int leave_to(struct xdp_md *ctx, const struct choice *ch, enum way way,
				    bool v6)
{
	return leave_by(ctx, ch->hop->macs, ch->hop->ifindex, way, v6);
}

/* The same with a next hop found for this packet only. */
static __always_inline int leave(struct xdp_md *ctx, const struct departure *d, enum way way,
				 bool v6)
{
	__u32 macs[2 * ETH_ALEN / 4];

	__builtin_memcpy(macs, d->fib.dmac, ETH_ALEN);
	__builtin_memcpy((void *)macs + ETH_ALEN, d->fib.smac, ETH_ALEN);
	return leave_by(ctx, macs, d->fib.ifindex, way, v6);
}

#endif
