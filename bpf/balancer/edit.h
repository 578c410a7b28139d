/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Changes addresses, ports and checksums at any offset: the slow path counterpart of
 * rewrite.h. Checksums are always updated incrementally: that of a first fragment
 * covers data in other fragments, that of a quoted packet covers truncated data.
 */
#ifndef FAIRLEAD_BALANCER_EDIT_H
#define FAIRLEAD_BALANCER_EDIT_H

#include "csum.h"
#include "rewrite.h"
#include "scratch.h"

static __always_inline bool has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP;
}

/* Swaps source and destination in place. */
static __always_inline void tuple_turn(struct tuple *t)
{
	struct addr src = t->src;
	__be16 sport = t->sport;

	t->src = t->dst;
	t->dst = src;
	t->sport = t->dport;
	t->dport = sport;
}

/* Updates the checksum at `at` by a difference and adds the resulting change to
 * r->diff. A checksum beyond `end` was truncated.
 */
__noinline int edit_check(struct xdp_md *ctx, struct rare *r, __u32 at, __u32 end, __u64 diff)
{
	if (!r)
		return -1;
	bool udp = r->from.proto == IPPROTO_UDP;
	__sum16 old, new;

	if (at + sizeof(old) > end)
		return 0;
	if (bpf_xdp_load_bytes(ctx, at, &old, sizeof(old)))
		return -1;
	new = udp ? csum_apply_udp(old, diff) : csum_apply(old, diff);
	r->diff = csum_diff2(r->diff, old, new);
	return bpf_xdp_store_bytes(ctx, at, &new, sizeof(new));
}

/* Updates the SCTP checksum after a port change. It covers the whole packet but no
 * addresses. In a fragment the total length is unknown, so the packet is dropped. In
 * a quoted packet the receiver does not check it.
 */
static __always_inline int edit_sctp(struct xdp_md *ctx, struct rare *r, const struct spot *s)
{
	__u32 change = (r->from.sport ^ r->to.sport) | (__u32)(r->from.dport ^ r->to.dport) << 16;
	__u32 at = s->l4 + offsetof(struct sctphdr, checksum), sum;

	if (!change || r->is_error)
		return 0;
	if (s->more)
		return -1;
	if (bpf_xdp_load_bytes(ctx, at, &sum, sizeof(sum)))
		return -1;
	sum ^= crc32c_change(change, s->end - s->l4);
	return bpf_xdp_store_bytes(ctx, at, &sum, sizeof(sum));
}

/* Returns why edit failed. */
static __always_inline enum drop_reason edit_refusal(const struct rare *r)
{
	return r->from.proto == IPPROTO_SCTP && r->own.more ? DROP_SCTP_FRAGMENT : DROP_NO_HEADROOM;
}

/* Writes the ports, and the checksum that covers them and the addresses. */
static __always_inline int edit_l4(struct xdp_md *ctx, struct rare *r, const struct spot *s,
				   __u64 diff)
{
	__be16 ports[2] = {r->to.sport, r->to.dport};
	__u64 change = csum_diff2(csum_diff2(0, r->from.sport, ports[0]), r->from.dport, ports[1]);

	if (bpf_xdp_store_bytes(ctx, s->l4, ports, sizeof(ports)))
		return -1;
	r->diff += change;
	switch (r->from.proto) {
	case IPPROTO_TCP:
		return edit_check(ctx, r, s->l4 + offsetof(struct tcphdr, check), s->end,
				  diff + change);
	case IPPROTO_UDP:
		return edit_check(ctx, r, s->l4 + offsetof(struct udphdr, check), s->end,
				  diff + change);
	case IPPROTO_SCTP:
		return edit_sctp(ctx, r, s);
	}
	return 0;
}

static __always_inline __u64 edit_addrs_v4(struct rare *r, struct spot *s)
{
	__u64 diff = rewrite_diff(&r->from, &r->to, false);
	__sum16 old = s->ip.v4.check;

	s->ip.v4.saddr = addr_to_v4(&r->to.src);
	s->ip.v4.daddr = addr_to_v4(&r->to.dst);
	s->ip.v4.check = csum_apply(old, diff);
	r->diff = csum_diff2(diff, old, s->ip.v4.check);
	return diff;
}

static __always_inline __u64 edit_addrs_v6(struct rare *r, struct spot *s)
{
	addr_to_v6(&s->ip.v6.saddr, &r->to.src);
	addr_to_v6(&s->ip.v6.daddr, &r->to.dst);
	r->diff = rewrite_diff(&r->from, &r->to, true);
	return r->diff;
}

/* Rewrites the packet at s from r->from to r->to. r->diff receives the sum of all
 * changes in the frame.
 */
__noinline int edit(struct xdp_md *ctx, struct rare *r, struct spot *s)
{
	if (!r || !s)
		return -1;
	__u64 diff;

	if (r->v6) {
		diff = edit_addrs_v6(r, s);
		if (bpf_xdp_store_bytes(ctx, s->l3, &s->ip, sizeof(s->ip.v6)))
			return -1;
	} else {
		diff = edit_addrs_v4(r, s);
		if (bpf_xdp_store_bytes(ctx, s->l3, &s->ip, sizeof(s->ip.v4)))
			return -1;
	}
	if (s->offset || !has_ports(r->from.proto))
		return 0;
	return edit_l4(ctx, r, s, diff);
}

#endif
