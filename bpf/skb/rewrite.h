/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rewriting an sk_buff, whose checksum state must stay valid (CHECKSUM_PARTIAL from a
 * local sender or GRO, CHECKSUM_COMPLETE from a NIC): the kernel's helpers maintain
 * it, and write at any offset. Most packets have their headers at constant offsets:
 * there, fields outside the checksum state are written in place.
 *
 * Every function returns 0, or an error after which the packet may be partially
 * changed and must be dropped.
 */
#ifndef FAIRLEAD_SKB_REWRITE_H
#define FAIRLEAD_SKB_REWRITE_H

#include "addr.h"
#include "common.h"
#include "csum.h"
#include "read.h"

/* Segment sizes and checksum state belong to the inner packet and stay. */
#define ROOM_FLAGS (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

/* ICMP and ICMPv6 have their checksum at the same offset. */
#define ICMP_CHECK 2

enum side { SIDE_SRC, SIDE_DST };

/* Returns the offset of the checksum that covers the addresses, or 0. A later
 * fragment has none, and SCTP's covers no address.
 */
static __always_inline __u32 check_at(const struct view *v, enum kind kind)
{
	if (kind == KIND_LATER)
		return 0;
	switch (v->t.proto) {
	case IPPROTO_TCP:
		return v->l4 + offsetof(struct tcphdr, check);
	case IPPROTO_UDP:
		return v->l4 + offsetof(struct udphdr, check);
	case IPPROTO_ICMPV6:
		return v->l4 + ICMP_CHECK;
	}
	return 0;
}

/* Zero means "none" in UDP: it stays, and no other sum may become zero. */
static __always_inline __u64 check_flags(const struct view *v)
{
	return v->t.proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

/* Updates a transport checksum for changed addresses. */
static __always_inline long replace_addrs(struct __sk_buff *skb, const struct view *v, __u32 at,
					  __u16 diff, bool v6)
{
	__u64 flags = check_flags(v) | BPF_F_PSEUDO_HDR;

	/* BPF_F_IPV6 keeps a NIC's whole-packet sum correct. Kernels before 6.16 and
	 * their stable trees of May 2025 reject it before anything is changed.
	 */
	if (v6 && !bpf_l4_csum_replace(skb, at, 0, diff, flags | BPF_F_IPV6))
		return 0;
	return bpf_l4_csum_replace(skb, at, 0, diff, flags);
}

/* The fields of an IPv4 header from its checksum on, which change together. */
struct ipv4_tail {
	__sum16 check;
	__be32 saddr, daddr;
} __attribute__((packed));

static __always_inline long rewrite_addr_v4(struct __sk_buff *skb, const struct view *v,
					    __u32 check, enum side side, __be32 from, __be32 to)
{
	__u32 at = v->l3 + offsetof(struct iphdr, check);
	struct ipv4_tail tail;
	long err;

	if (check && replace_addrs(skb, v, check, csum_fold(csum_diff4(0, from, to)), false))
		return -1;
	err = bpf_skb_load_bytes(skb, at, &tail, sizeof(tail));
	if (err)
		return err;
	tail.check = csum_apply(tail.check, csum_diff4(0, from, to));
	if (side == SIDE_SRC)
		tail.saddr = to;
	else
		tail.daddr = to;
	return bpf_skb_store_bytes(skb, at, &tail, sizeof(tail), 0);
}

static __always_inline long rewrite_addr_v6(struct __sk_buff *skb, const struct view *v,
					    __u32 check, enum side side, const struct addr *from,
					    const struct addr *to)
{
	__u32 at = v->l3 + (side == SIDE_SRC ? offsetof(struct ipv6hdr, saddr)
					     : offsetof(struct ipv6hdr, daddr));

	/* Nothing else in the packet compensates for the change. */
	if (!check)
		return bpf_skb_store_bytes(skb, at, to, sizeof(*to), BPF_F_RECOMPUTE_CSUM);
	if (replace_addrs(skb, v, check, csum_fold(csum_diff_addr(0, from, to, true)), true))
		return -1;
	return bpf_skb_store_bytes(skb, at, to, sizeof(*to), 0);
}

/* Replaces one address of a packet. */
static __always_inline long rewrite_addr(struct __sk_buff *skb, const struct view *v,
					 enum kind kind, enum side side, const struct addr *to)
{
	const struct addr *from = side == SIDE_SRC ? &v->t.src : &v->t.dst;
	__u32 check = check_at(v, kind);

	if (addr_equal(from, to))
		return 0;
	return v->v6 ? rewrite_addr_v6(skb, v, check, side, from, to)
		     : rewrite_addr_v4(skb, v, check, side, addr_to_v4(from), addr_to_v4(to));
}

/* Returns bytes of the frame at a constant offset, or NULL if they are inaccessible. */
static __always_inline void *in_frame(struct __sk_buff *skb, __u32 at, __u32 bytes)
{
	void *here = (void *)(long)skb->data + at;

	return here + bytes > (void *)(long)skb->data_end ? NULL : here;
}

static __always_inline __sum16 sum_apply(const struct view *v, __sum16 sum, __u64 diff)
{
	return v->t.proto == IPPROTO_UDP ? csum_apply_udp(sum, diff) : csum_apply(sum, diff);
}

/* Updates the transport checksum, at a constant offset, for changed addresses and a
 * port. In a packet that is not summed yet (CHECKSUM_PARTIAL) it covers only the
 * addresses, and is not inverted. Only the kernel knows this state, but its update of
 * the addresses reveals it.
 */
static __always_inline long rewrite_sum(struct __sk_buff *skb, const struct view *v, __u32 at,
					__u64 addrs, __be16 from_port, __be16 to_port, bool v6)
{
	__u32 diff = csum_fold(addrs);
	__sum16 *sum = in_frame(skb, at, sizeof(*sum)), old;

	if (!sum)
		return -1;
	if (diff == 0 || diff == 0xffff) { /* would reveal nothing */
		if (from_port == to_port)
			return 0;
		return bpf_l4_csum_replace(skb, at, from_port, to_port,
					   check_flags(v) | sizeof(to_port));
	}
	old = *sum;
	if (replace_addrs(skb, v, at, diff, v6))
		return -1;
	sum = in_frame(skb, at, sizeof(*sum));
	if (!sum)
		return -1;
	if (*sum == sum_apply(v, old, addrs))
		*sum = sum_apply(v, old, csum_diff2(addrs, from_port, to_port));
	return 0;
}

/* Replaces one address and port of a packet in place, if its ports directly follow
 * its IP header.
 */
static __always_inline long rewrite_plain(struct __sk_buff *skb, const struct view *v,
					  enum side side, const struct addr *to, __be16 to_port,
					  bool v6)
{
	const __u32 l3 = sizeof(struct ethhdr);
	const __u32 l4 = l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	const struct addr *from = side == SIDE_SRC ? &v->t.src : &v->t.dst;
	__be16 from_port = side == SIDE_SRC ? v->t.sport : v->t.dport;
	__u64 diff = csum_diff_addr(0, from, to, v6);
	struct udphdr *ports; /* all three have them at the same offset */
	void *head;

	if (v->t.proto == IPPROTO_TCP) {
		if (rewrite_sum(skb, v, l4 + offsetof(struct tcphdr, check), diff, from_port,
				to_port, v6))
			return -1;
	} else if (v->t.proto == IPPROTO_UDP) {
		if (rewrite_sum(skb, v, l4 + offsetof(struct udphdr, check), diff, from_port,
				to_port, v6))
			return -1;
	} else if (from_port != to_port) {
		return -1;
	}
	head = in_frame(skb, l3, l4 - l3);
	ports = in_frame(skb, l4, sizeof(*ports));
	if (!head || !ports)
		return -1;
	if (v6) {
		struct ipv6hdr *ip = head;

		addr_copy(side == SIDE_SRC ? &ip->saddr : &ip->daddr, to);
	} else {
		struct iphdr *ip = head;

		*(side == SIDE_SRC ? &ip->saddr : &ip->daddr) = addr_to_v4(to);
		ip->check = csum_apply(ip->check, diff);
	}
	*(side == SIDE_SRC ? &ports->source : &ports->dest) = to_port;
	return 0;
}

/* Replaces one address and port of a packet with ports. SCTP's checksum covers the
 * whole packet, so there the port stays the same.
 */
static __always_inline long rewrite(struct __sk_buff *skb, const struct view *v, enum side side,
				    const struct addr *to, __be16 to_port)
{
	__be16 from_port = side == SIDE_SRC ? v->t.sport : v->t.dport;
	__u32 check = check_at(v, KIND_TRANSPORT);
	/* All three have their ports at the same offset. */
	__u32 at = v->l4 + (side == SIDE_SRC ? offsetof(struct udphdr, source)
					     : offsetof(struct udphdr, dest));
	long err;

	if (v->plain && v->l3 == sizeof(struct ethhdr) && (check || !v->v6))
		return v->v6 ? rewrite_plain(skb, v, side, to, to_port, true)
			     : rewrite_plain(skb, v, side, to, to_port, false);
	err = rewrite_addr(skb, v, KIND_TRANSPORT, side, to);
	if (err || from_port == to_port)
		return err;
	if (!check)
		return -1;
	return bpf_l4_csum_replace(skb, check, from_port, to_port, check_flags(v) | sizeof(to_port))
		       ?: bpf_skb_store_bytes(skb, at, &to_port, sizeof(to_port), 0);
}

/* Decrements the TTL or hop limit of v's header, which is greater than one. */
static __always_inline long rewrite_ttl(struct __sk_buff *skb, const struct view *v)
{
	__u8 ttl = v->ttl - 1;
	struct iphdr ip;

	if (v->v6) /* nothing else in the header compensates for it */
		return bpf_skb_store_bytes(skb, v->l3 + offsetof(struct ipv6hdr, hop_limit), &ttl,
					   sizeof(ttl), BPF_F_RECOMPUTE_CSUM);
	if (v->l3 == sizeof(struct ethhdr)) {
		struct iphdr *here = in_frame(skb, sizeof(struct ethhdr), sizeof(*here));

		if (!here)
			return -1;
		ipv4_decrement_ttl(here);
		return 0;
	}
	if (bpf_skb_load_bytes(skb, v->l3, &ip, sizeof(ip)))
		return -1;
	ipv4_decrement_ttl(&ip);
	return bpf_skb_store_bytes(skb, v->l3, &ip, sizeof(ip), 0);
}

/* Removes everything before the inner packet except the Ethernet header. If the
 * families differ, the kernel's protocol change does the first part: it changes the
 * header's length by 20 bytes and updates the kernel's view of the frame, on every
 * kernel (BPF_F_ADJ_ROOM_DECAP_L3_* came with 6.3). sum: the outer header had a
 * checksum over the packet, which a NIC may have verified instead of the inner one.
 */
static __always_inline long strip_outer(struct __sk_buff *skb, const struct view *outer,
					struct view *inner, bool sum)
{
	const __s32 grows = sizeof(struct ipv6hdr) - sizeof(struct iphdr);
	__u64 flags = sum ? BPF_F_ADJ_ROOM_FIXED_GSO : ROOM_FLAGS;
	__be16 proto = bpf_htons(inner->v6 ? ETH_P_IPV6 : ETH_P_IP);
	__s32 bytes = inner->l3 - outer->l3;
	long err;

	if (outer->v6 != inner->v6) {
		err = bpf_skb_change_proto(skb, proto, 0);
		if (err)
			return err;
		bytes += inner->v6 ? grows : -grows;
	}
	err = bpf_skb_adjust_room(skb, -bytes, BPF_ADJ_ROOM_MAC, flags);
	if (err)
		return err;
	inner->l4 -= inner->l3 - outer->l3;
	inner->l3 = outer->l3;
	if (outer->v6 != inner->v6)
		err = bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &proto,
					  sizeof(proto), 0);
	return err;
}

/* Replaces the destination of the first IP header, whose payload has no checksum over
 * it (a tunnel).
 */
static __always_inline long rewrite_outer_dst(struct __sk_buff *skb, const struct view *v,
					      const struct addr *to)
{
	return rewrite_addr(skb, v, KIND_LATER, SIDE_DST, to);
}

#endif
