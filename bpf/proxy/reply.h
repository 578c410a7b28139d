/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers that the program itself sends to a packet's sender: a reset, or an ICMP
 * error (RFC 792, RFC 4443), from the packet's destination. They leave by the device
 * where the packet was seen.
 */
#ifndef FAIRLEAD_PROXY_REPLY_H
#define FAIRLEAD_PROXY_REPLY_H

#include "csum.h"
#include "proxy/count.h"
#include "proxy/scratch.h"
#include "skb/rewrite.h"

#define ANSWER_HOPS 64
#define ICMP_UNREACH_PORT 3
#define ICMP_UNREACH_FRAG_NEEDED 4
#define ICMPV6_TOO_BIG 2
#define ICMPV6_TIME_EXCEEDED 3
#define ICMPV6_UNREACH_PORT 4

/* An ICMP error, common to both families. */
struct icmp_error {
	__u8 type;
	__u8 code;
	__sum16 check;
	__be32 more;
};

struct error4 {
	struct iphdr ip;
	struct icmp_error icmp;
};

struct error6 {
	struct ipv6hdr ip;
	struct icmp_error icmp;
};

/* Returns the frame to its sender. */
static __always_inline int bounce(struct __sk_buff *skb, const struct scratch *s)
{
	__u64 flags = s->place == PLACE_LEAVING ? BPF_F_INGRESS : 0;
	__u8 macs[2 * ETH_ALEN], turned[2 * ETH_ALEN];

	if (!s->l3)
		return bpf_redirect(skb->ifindex, flags);
	if (bpf_skb_load_bytes(skb, 0, macs, sizeof(macs)))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	__builtin_memcpy(turned, macs + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(turned + ETH_ALEN, macs, ETH_ALEN);
	if (bpf_skb_store_bytes(skb, 0, turned, sizeof(turned), 0))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	return bpf_redirect(skb->ifindex, flags);
}

/* Returns the sum of the pseudo-header, the same for the answer and the packet:
 * swapping source and destination does not change it.
 */
static __always_inline __u64 pseudo_sum(const struct view *v, __u32 bytes, __u8 proto)
{
	__u64 sum = bpf_htonl(bytes);

	sum += bpf_htonl(proto);
	for (int i = 0; i < 4; i++)
		if (v->v6 || i == 3)
			sum += (__u64)v->t.src.word[i] + v->t.dst.word[i];
	return sum;
}

/* Reports whether the kernel or a NIC has yet to fill in this checksum
 * (CHECKSUM_PARTIAL). The kernel does not expose this state to programs, but it adds
 * to such a checksum what it subtracts from another. The second call undoes the
 * first, except for zero, which has two forms.
 */
static __noinline bool is_unfilled(struct __sk_buff *skb, __u32 at)
{
	__sum16 before, after;

	if (bpf_skb_load_bytes(skb, at, &before, sizeof(before)) ||
	    bpf_l4_csum_replace(skb, at, 0, 1, BPF_F_PSEUDO_HDR) ||
	    bpf_skb_load_bytes(skb, at, &after, sizeof(after)) ||
	    bpf_l4_csum_replace(skb, at, 0, 0xfffe, BPF_F_PSEUDO_HDR) ||
	    bpf_skb_store_bytes(skb, at, &before, sizeof(before), 0))
		return false;
	return after == csum_fold((__u64)before + 1);
}

/* Returns what the packet, truncated to this many bytes from l3 on, adds to a
 * checksum over it. A checksum still to be filled in makes its own transport's sum
 * the complement of its current value
 * (Documentation/networking/checksum-offloads.rst, LCO).
 */
static __noinline __s64 sum_of_quote(struct __sk_buff *skb, struct scratch *s, __u32 bytes)
{
	const struct view *v = &s->view;
	__u32 check = check_at(v, KIND_TRANSPORT);
	__sum16 unfilled = 0;

	__builtin_memset(s->quote, 0, sizeof(s->quote));
	if (check && is_unfilled(skb, check)) {
		if (bpf_skb_load_bytes(skb, check, &unfilled, sizeof(unfilled)))
			return -1;
		bytes = v->l4 - v->l3;
		unfilled = ~unfilled;
	}
	if (bpf_skb_load_bytes(skb, v->l3, s->quote, within(bytes, QUOTE_BYTES)))
		return -1;
	return bpf_csum_diff(NULL, 0, (__be32 *)s->quote, sizeof(s->quote), unfilled);
}

static __always_inline long write_error4(struct __sk_buff *skb, struct scratch *s,
					 const struct icmp_error *icmp, __u32 quote, __u64 sum)
{
	const struct view *v = &s->view;
	struct error4 *e = (struct error4 *)s->head;

	__builtin_memset(e, 0, sizeof(*e));
	e->ip.version = 4;
	e->ip.ihl = 5;
	e->ip.tot_len = bpf_htons(sizeof(*e) + quote);
	e->ip.ttl = ANSWER_HOPS;
	e->ip.protocol = IPPROTO_ICMP;
	e->ip.saddr = addr_to_v4(&v->t.dst);
	e->ip.daddr = addr_to_v4(&v->t.src);
	e->ip.check = csum_ipv4(&e->ip, sizeof(e->ip));
	e->icmp = *icmp;
	e->icmp.check = ~csum_fold(sum);
	return bpf_skb_store_bytes(skb, v->l3, e, sizeof(*e), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline long write_error6(struct __sk_buff *skb, struct scratch *s,
					 const struct icmp_error *icmp, __u32 quote, __u64 sum)
{
	const struct view *v = &s->view;
	struct error6 *e = (struct error6 *)s->head;
	__u32 bytes = sizeof(e->icmp) + quote;

	__builtin_memset(e, 0, sizeof(*e));
	e->ip.version = 6;
	e->ip.payload_len = bpf_htons(bytes);
	e->ip.nexthdr = IPPROTO_ICMPV6;
	e->ip.hop_limit = ANSWER_HOPS;
	addr_to_v6(&e->ip.saddr, &v->t.dst);
	addr_to_v6(&e->ip.daddr, &v->t.src);
	e->icmp = *icmp;
	e->icmp.check = ~csum_fold(sum + pseudo_sum(v, bytes, IPPROTO_ICMPV6));
	return bpf_skb_store_bytes(skb, v->l3, e, sizeof(*e), BPF_F_RECOMPUTE_CSUM);
}

/* Answers with an ICMP error. Packets with options or extension headers are too
 * infrequent to be quoted.
 */
static __noinline int answer_error(struct __sk_buff *skb, struct scratch *s,
				   const struct icmp_error *icmp)
{
	const struct view *v = &s->view;
	__u32 quote = v->l4 - v->l3 + v->room;
	__u32 grows = v->v6 ? sizeof(struct error6) : sizeof(struct error4);
	const __be32 *head = (const __be32 *)icmp;
	__s64 sum;
	long err;

	if (!v->plain)
		return drop(PACKET_COUNTER_DROPPED_NO_ANSWER);
	if (quote > QUOTE_BYTES)
		quote = QUOTE_BYTES;
	sum = sum_of_quote(skb, s, quote);
	if (sum < 0 || bpf_skb_change_tail(skb, v->l3 + quote, 0) ||
	    bpf_skb_adjust_room(skb, grows, BPF_ADJ_ROOM_MAC, 0))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	sum += (__u64)head[0] + head[1];
	err = v->v6 ? write_error6(skb, s, icmp, quote, sum)
		    : write_error4(skb, s, icmp, quote, sum);
	return err ? drop(PACKET_COUNTER_DROPPED_REWRITE) : bounce(skb, s);
}

/* Builds the error of an answer. RFC 1191 has the MTU in the lower half of a word,
 * RFC 4443 as a word.
 */
static __always_inline void make_error(struct icmp_error *icmp, enum answer what, __u32 mtu,
				       bool v6)
{
	__builtin_memset(icmp, 0, sizeof(*icmp));
	if (what == ANSWER_EXPIRED) {
		icmp->type = v6 ? ICMPV6_TIME_EXCEEDED : ICMP_TIME_EXCEEDED;
	} else if (what == ANSWER_UNREACHABLE) {
		icmp->type = v6 ? ICMPV6_DEST_UNREACH : ICMP_DEST_UNREACH;
		icmp->code = v6 ? ICMPV6_UNREACH_PORT : ICMP_UNREACH_PORT;
	} else {
		icmp->type = v6 ? ICMPV6_TOO_BIG : ICMP_DEST_UNREACH;
		icmp->code = v6 ? 0 : ICMP_UNREACH_FRAG_NEEDED;
		icmp->more = bpf_htonl(mtu);
	}
}

/* Builds the reset for a segment (RFC 9293, 3.10.7.1). */
static __always_inline void make_reset(struct tcphdr *reset, const struct tcphdr *tcp, __u32 room)
{
	__builtin_memset(reset, 0, sizeof(*reset));
	reset->source = tcp->dest;
	reset->dest = tcp->source;
	reset->doff = sizeof(*reset) / 4;
	reset->rst = 1;
	if (tcp->ack) {
		reset->seq = tcp->ack_seq;
		return;
	}
	reset->ack = 1;
	reset->ack_seq =
		bpf_htonl(bpf_ntohl(tcp->seq) + room - tcp->doff * 4 + tcp->syn + tcp->fin);
}

static __always_inline long write_ip(struct __sk_buff *skb, struct scratch *s, __u16 payload)
{
	const struct view *v = &s->view;
	struct ipv6hdr *ip6 = (struct ipv6hdr *)s->head;
	struct iphdr *ip = (struct iphdr *)s->head;

	__builtin_memset(s->head, 0, sizeof(s->head));
	if (v->v6) {
		ip6->version = 6;
		ip6->payload_len = bpf_htons(payload);
		ip6->nexthdr = v->t.proto;
		ip6->hop_limit = ANSWER_HOPS;
		addr_to_v6(&ip6->saddr, &v->t.dst);
		addr_to_v6(&ip6->daddr, &v->t.src);
		return bpf_skb_store_bytes(skb, v->l3, ip6, sizeof(*ip6), BPF_F_RECOMPUTE_CSUM);
	}
	ip->version = 4;
	ip->ihl = 5;
	ip->tot_len = bpf_htons(sizeof(*ip) + payload);
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = ANSWER_HOPS;
	ip->protocol = v->t.proto;
	ip->saddr = addr_to_v4(&v->t.dst);
	ip->daddr = addr_to_v4(&v->t.src);
	ip->check = csum_ipv4(ip, sizeof(*ip));
	return bpf_skb_store_bytes(skb, v->l3, ip, sizeof(*ip), BPF_F_RECOMPUTE_CSUM);
}

/* Answers a segment with a reset, which replaces it in the frame. */
static __noinline int answer_reset(struct __sk_buff *skb, struct scratch *s)
{
	const struct view *v = &s->view;
	struct tcphdr tcp, reset;
	bool unfilled;
	__u64 sum;

	if (!v->plain || bpf_skb_load_bytes(skb, v->l4, &tcp, sizeof(tcp)))
		return drop(PACKET_COUNTER_DROPPED_NO_ANSWER);
	unfilled = is_unfilled(skb, check_at(v, KIND_TRANSPORT));
	make_reset(&reset, &tcp, v->room);
	sum = pseudo_sum(v, sizeof(reset), IPPROTO_TCP);
	if (unfilled)
		reset.check = csum_fold(sum);
	else
		reset.check = ~csum_fold(
			sum + (__u32)bpf_csum_diff(NULL, 0, (__be32 *)&reset, sizeof(reset), 0));
	if (bpf_skb_change_tail(skb, v->l4 + sizeof(reset), 0) || write_ip(skb, s, sizeof(reset)) ||
	    bpf_skb_store_bytes(skb, v->l4, &reset, sizeof(reset), BPF_F_RECOMPUTE_CSUM))
		return drop(PACKET_COUNTER_DROPPED_REWRITE);
	return bounce(skb, s);
}

static __noinline int give_answer(struct __sk_buff *skb, struct scratch *s, enum answer what)
{
	struct icmp_error icmp;

	if (is_martian(&s->view.t.src, s->view.v6))
		return drop(PACKET_COUNTER_DROPPED_NO_ANSWER);
	if (what == ANSWER_RESET)
		return answer_reset(skb, s);
	make_error(&icmp, what, s->way.mtu, s->view.v6);
	return answer_error(skb, s, &icmp);
}

#endif
