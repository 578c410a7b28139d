/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Changing an sk_buff. Only the kernel's helpers write here: they keep its
 * notes on checksums right (CHECKSUM_PARTIAL of a local sender or of GRO,
 * CHECKSUM_COMPLETE of a NIC), which a plain store would not.
 *
 * Every function gives 0 or an error after which the packet may be half
 * changed and must be dropped.
 */
#ifndef FAIRLEAD_SERVER_REWRITE_H
#define FAIRLEAD_SERVER_REWRITE_H

#include "addr.h"
#include "common.h"
#include "csum.h"
#include "option.h"
#include "read.h"

/* Segment sizes and the checksum's state belong to the inner packet and stay. */
#define ROOM_FLAGS (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

enum side { SIDE_SRC, SIDE_DST };

static __always_inline __u32 l4_check_offset(const struct view *v)
{
	return v->l4 + (v->p.t.proto == IPPROTO_TCP ? offsetof(struct tcphdr, check)
						    : offsetof(struct udphdr, check));
}

/* Zero means "none" in UDP: it stays, and no other sum may become it. */
static __always_inline __u64 l4_check_flags(const struct view *v)
{
	return v->p.t.proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

static __always_inline long rewrite_addr_v4(struct __sk_buff *skb, const struct view *v,
					    enum side side, __be32 from, __be32 to)
{
	__u32 at = v->l3 + (side == SIDE_SRC ? offsetof(struct iphdr, saddr)
					     : offsetof(struct iphdr, daddr));
	__u64 flags = l4_check_flags(v) | BPF_F_PSEUDO_HDR | sizeof(to);

	return bpf_l4_csum_replace(skb, l4_check_offset(v), from, to, flags) ?:
	       bpf_l3_csum_replace(skb, v->l3 + offsetof(struct iphdr, check), from, to,
				   sizeof(to)) ?:
	       bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0);
}

static __always_inline long rewrite_addr_v6(struct __sk_buff *skb, const struct view *v,
					    enum side side, const struct addr *from,
					    const struct addr *to)
{
	__u32 at = v->l3 + (side == SIDE_SRC ? offsetof(struct ipv6hdr, saddr)
					     : offsetof(struct ipv6hdr, daddr));
	__u64 flags = l4_check_flags(v) | BPF_F_PSEUDO_HDR;
	__s64 diff = bpf_csum_diff((__be32 *)from->word, sizeof(from->word), (__be32 *)to->word,
				   sizeof(to->word), 0);

	if (diff < 0)
		return diff;
	/* BPF_F_IPV6 keeps a NIC's whole-packet sum right; kernels before 6.16
	 * and their stable trees of May 2025 know it not and refuse it before
	 * anything is changed.
	 */
	if (bpf_l4_csum_replace(skb, l4_check_offset(v), 0, diff, flags | BPF_F_IPV6) &&
	    bpf_l4_csum_replace(skb, l4_check_offset(v), 0, diff, flags))
		return -1;
	return bpf_skb_store_bytes(skb, at, to, sizeof(*to), 0);
}

/* Gives one side of a TCP or UDP packet another address and port. */
static __always_inline long rewrite(struct __sk_buff *skb, const struct view *v, enum side side,
				    const struct addr *to, __be16 to_port)
{
	const struct addr *from = side == SIDE_SRC ? &v->p.t.src : &v->p.t.dst;
	__be16 from_port = side == SIDE_SRC ? v->p.t.sport : v->p.t.dport;
	/* TCP and UDP have their ports at the same place. */
	__u32 at = v->l4 + (side == SIDE_SRC ? offsetof(struct udphdr, source)
					     : offsetof(struct udphdr, dest));
	long err = 0;

	if (!addr_equal(from, to))
		err = v->v6 ? rewrite_addr_v6(skb, v, side, from, to)
			    : rewrite_addr_v4(skb, v, side, addr_to_v4(from), addr_to_v4(to));
	if (err || from_port == to_port)
		return err;
	return bpf_l4_csum_replace(skb, l4_check_offset(v), from_port, to_port,
				   l4_check_flags(v) | sizeof(to_port))
		       ?: bpf_skb_store_bytes(skb, at, &to_port, sizeof(to_port), 0);
}

/* Takes one off the TTL or hop limit, which is greater than one. */
static __always_inline long rewrite_ttl(struct __sk_buff *skb, const struct view *v)
{
	__u8 ttl = v->p.ttl - 1;
	long err;

	if (v->v6)
		return bpf_skb_store_bytes(skb, v->l3 + offsetof(struct ipv6hdr, hop_limit), &ttl,
					   sizeof(ttl), BPF_F_RECOMPUTE_CSUM);
	/* The high byte of the word that it shares with the protocol. */
	err = bpf_l3_csum_replace(skb, v->l3 + offsetof(struct iphdr, check),
				  bpf_htons(v->p.ttl << 8), bpf_htons(ttl << 8), sizeof(__u16));
	return err ?: bpf_skb_store_bytes(skb, v->l3 + offsetof(struct iphdr, ttl), &ttl, 1, 0);
}

/* The checksum's difference once the option's 8 bytes are gone. */
static __always_inline __u64 option4_csum_gone(const struct endpoint *e)
{
	__u64 diff = csum_diff2(0, bpf_htons(OPTION4_TYPE << 8 | sizeof(struct option4)), 0);

	diff = csum_diff4(diff, addr_to_v4(&e->addr), 0);
	return csum_diff2(diff, e->port, 0);
}

static __always_inline long strip_option4(struct __sk_buff *skb, struct view *v)
{
	struct iphdr ip;
	__be16 len, word;
	__u64 diff = option4_csum_gone(&v->option);
	long err = bpf_skb_load_bytes(skb, v->l3, &ip, sizeof(ip));

	if (err)
		return err;
	len = ip.tot_len;
	word = bpf_htons(0x4700 | ip.tos);
	ip.ihl = sizeof(ip) / 4;
	if (len) /* BIG TCP: none before, none after */
		ip.tot_len = bpf_htons(bpf_ntohs(len) - sizeof(struct option4));
	diff = csum_diff2(diff, word, bpf_htons(0x4500 | ip.tos));
	ip.check = csum_apply(ip.check, csum_diff2(diff, len, ip.tot_len));
	return bpf_skb_store_bytes(skb, v->l3, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline long strip_option6(struct __sk_buff *skb, struct view *v)
{
	struct ipv6hdr ip;
	long err = bpf_skb_load_bytes(skb, v->l3, &ip, sizeof(ip));

	if (err)
		return err;
	ip.nexthdr = v->p.t.proto;
	if (ip.payload_len)
		ip.payload_len = bpf_htons(bpf_ntohs(ip.payload_len) - sizeof(struct option6));
	return bpf_skb_store_bytes(skb, v->l3, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
}

/* Takes the option out of the header that v describes, the frame's first. The
 * kernel resizes behind the fixed header, exactly where the option is.
 */
static __always_inline long strip_option(struct __sk_buff *skb, struct view *v)
{
	__s32 bytes = OPTION_SIZE(v->v6);
	long err = bpf_skb_adjust_room(skb, -bytes, BPF_ADJ_ROOM_NET, ROOM_FLAGS);

	if (err)
		return err;
	v->l4 -= bytes;
	v->has_option = false;
	return v->v6 ? strip_option6(skb, v) : strip_option4(skb, v);
}

/* Writes another address and port into the option. */
static __always_inline long replace_option(struct __sk_buff *skb, const struct view *v,
					   const struct endpoint *e)
{
	__u32 at = v->l3 + sizeof(struct iphdr);
	__u64 diff = option4_csum_gone(&v->option);
	struct option4 o4;
	struct option6 o6;
	__sum16 check;
	long err;

	if (v->v6) {
		option6_build(&o6, &e->addr, e->port, v->p.t.proto);
		return bpf_skb_store_bytes(skb, v->l3 + sizeof(struct ipv6hdr), &o6, sizeof(o6),
					   BPF_F_RECOMPUTE_CSUM);
	}
	option4_build(&o4, addr_to_v4(&e->addr), e->port);
	diff = csum_diff2(diff, 0, bpf_htons(OPTION4_TYPE << 8 | sizeof(o4)));
	diff = csum_diff4(diff, 0, addr_to_v4(&e->addr));
	diff = csum_diff2(diff, 0, e->port);
	err = bpf_skb_load_bytes(skb, v->l3 + offsetof(struct iphdr, check), &check, sizeof(check));
	if (err)
		return err;
	check = csum_apply(check, diff);
	return bpf_skb_store_bytes(skb, at, &o4, sizeof(o4), 0)
		       ?: bpf_skb_store_bytes(skb, v->l3 + offsetof(struct iphdr, check), &check,
					      sizeof(check), 0);
}

/* Takes off all before the inner packet but the Ethernet header. Where the
 * families differ the kernel's change of protocol does the first part: it
 * moves the header's length by 20 bytes and corrects the kernel's idea of what
 * the frame is, on every kernel (BPF_F_ADJ_ROOM_DECAP_L3_* came with 6.3).
 */
static __always_inline long strip_outer(struct __sk_buff *skb, const struct view *outer,
					struct view *inner)
{
	const __s32 grows = sizeof(struct ipv6hdr) - sizeof(struct iphdr);
	__be16 proto = bpf_htons(inner->v6 ? ETH_P_IPV6 : ETH_P_IP);
	__s32 bytes = inner->l3 - outer->l3;
	long err;

	if (outer->v6 != inner->v6) {
		err = bpf_skb_change_proto(skb, proto, 0);
		if (err)
			return err;
		bytes += inner->v6 ? grows : -grows;
	}
	err = bpf_skb_adjust_room(skb, -bytes, BPF_ADJ_ROOM_MAC, ROOM_FLAGS);
	if (err)
		return err;
	inner->l4 -= inner->l3 - outer->l3;
	inner->l3 = outer->l3;
	if (outer->v6 != inner->v6)
		err = bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &proto,
					  sizeof(proto), 0);
	return err;
}

/* Gives the first IP header another destination; what it carries has no
 * checksum over that (a tunnel).
 */
static __always_inline long rewrite_outer_dst(struct __sk_buff *skb, const struct view *v,
					      const struct addr *to)
{
	__be32 v4 = addr_to_v4(to);

	if (v->v6)
		return bpf_skb_store_bytes(skb, v->l3 + offsetof(struct ipv6hdr, daddr), to,
					   sizeof(*to), BPF_F_RECOMPUTE_CSUM);
	return bpf_l3_csum_replace(skb, v->l3 + offsetof(struct iphdr, check),
				   addr_to_v4(&v->p.t.dst), v4, sizeof(v4))
		       ?: bpf_skb_store_bytes(skb, v->l3 + offsetof(struct iphdr, daddr), &v4,
					      sizeof(v4), 0);
}

#endif
