/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading an sk_buff: one IP header, the Fairlead option behind it, and either
 * the ports of TCP and UDP or the fact that another IP packet follows.
 */
#ifndef FAIRLEAD_SERVER_READ_H
#define FAIRLEAD_SERVER_READ_H

#include "common.h"
#include "option.h"
#include "parse.h"
#include "maps.h"

/* All that is ever read: two IP headers, the outer with an option, and TCP. */
#define READ_BYTES                                                                                 \
	(sizeof(struct ethhdr) + 2 * sizeof(struct ipv6hdr) + sizeof(struct option6) +             \
	 sizeof(struct tcphdr))

enum kind {
	KIND_FOREIGN, /* nothing that concerns the server half */
	KIND_FRAGMENT,
	KIND_MALFORMED,
	KIND_TRANSPORT, /* TCP or UDP: p.t is whole */
	KIND_TUNNEL4,	/* an IPv4 packet at l4: p.t has the addresses */
	KIND_TUNNEL6,
};

/* One IP header and what it carries. */
struct view {
	struct packet p;
	struct endpoint option; /* where has_option says so */
	__u32 l3, l4;		/* where the header and its payload begin */
	bool v6;
	bool has_option;
};

/* Gives the linear bytes of the frame, with the headers among them. */
static __always_inline void read_begin(struct __sk_buff *skb, struct cursor *c)
{
	__u32 want = skb->len < READ_BYTES ? skb->len : READ_BYTES;

	if (skb->data_end - skb->data < want)
		bpf_skb_pull_data(skb, want);
	cursor_init(c, (void *)(long)skb->data, (void *)(long)skb->data_end);
}

/* What the header says comes next. room is the payload's length. */
static __always_inline enum kind read_payload(struct cursor *c, struct view *v, __u32 room)
{
	switch (v->p.t.proto) {
	case IPPROTO_IPIP:
		return KIND_TUNNEL4;
	case IPPROTO_IPV6:
		return KIND_TUNNEL6;
	case IPPROTO_TCP:
	case IPPROTO_UDP:
		if (!parse_l4(c, &v->p, room > 0xffff ? 0xffff : room) || v->p.malformed)
			return KIND_MALFORMED;
		return KIND_TRANSPORT;
	}
	return KIND_FOREIGN;
}

/* The length that a header claims, or 0 if the frame has less. The kernel's
 * own frames beyond 64 KiB claim none (BIG TCP).
 */
static __always_inline __u32 read_length(struct __sk_buff *skb, __u32 claimed, __u32 left)
{
	if (claimed == 0 && skb->gso_segs > 1)
		return left;
	return claimed <= left ? claimed : 0;
}

static __always_inline enum kind read_ipv4(struct __sk_buff *skb, struct cursor *c, struct view *v)
{
	struct iphdr *ip = parse_ipv4(c);
	__u32 header = sizeof(*ip), len;

	if (!ip)
		return KIND_MALFORMED;
	if (ipv4_is_fragment(ip))
		return KIND_FRAGMENT;
	v->has_option = option4_parse(c, ip, &v->option);
	if (v->has_option)
		header += sizeof(struct option4);
	else if (ip->ihl != 5)
		return KIND_FOREIGN;
	len = read_length(skb, bpf_ntohs(ip->tot_len), skb->len - v->l3);
	if (len < header)
		return KIND_MALFORMED;
	v->v6 = false;
	v->l4 = v->l3 + header;
	addr_from_v4(&v->p.t.src, ip->saddr);
	addr_from_v4(&v->p.t.dst, ip->daddr);
	v->p.t.proto = ip->protocol;
	v->p.ttl = ip->ttl;
	v->p.tos = ip->tos;
	return read_payload(c, v, len - header);
}

static __always_inline enum kind read_ipv6(struct __sk_buff *skb, struct cursor *c, struct view *v)
{
	struct ipv6hdr *ip = parse_ipv6(c);
	__u32 payload;

	if (!ip)
		return KIND_MALFORMED;
	payload = bpf_ntohs(ip->payload_len);
	payload = read_length(skb, payload, skb->len - v->l3 - sizeof(*ip));
	v->v6 = true;
	v->l4 = v->l3 + sizeof(*ip);
	v->p.t.proto = ip->nexthdr;
	v->has_option = option6_parse(c, ip, &v->option, &v->p.t.proto);
	if (v->p.t.proto == IPPROTO_FRAGMENT)
		return KIND_FRAGMENT;
	if (v->has_option) {
		v->l4 += sizeof(struct option6);
		if (payload < sizeof(struct option6))
			return KIND_MALFORMED;
		payload -= sizeof(struct option6);
	}
	addr_from_v6(&v->p.t.src, &ip->saddr);
	addr_from_v6(&v->p.t.dst, &ip->daddr);
	v->p.ttl = ip->hop_limit;
	v->p.tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	return read_payload(c, v, payload);
}

/* Reads the first header of an Ethernet frame. */
static __always_inline enum kind read_outer(struct __sk_buff *skb, struct cursor *c, struct view *v)
{
	struct ethhdr *eth = parse_eth(c);

	__builtin_memset(v, 0, sizeof(*v));
	v->l3 = sizeof(*eth);
	if (!eth || skb->len < sizeof(*eth) + sizeof(struct iphdr))
		return KIND_FOREIGN;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return read_ipv4(skb, c, v);
	if (eth->h_proto == bpf_htons(ETH_P_IPV6) &&
	    skb->len >= sizeof(*eth) + sizeof(struct ipv6hdr))
		return read_ipv6(skb, c, v);
	return KIND_FOREIGN;
}

/* Reads the packet inside a tunnel, where the cursor stands after read_outer. */
static __always_inline enum kind read_inner(struct __sk_buff *skb, struct cursor *c, __u32 l3,
					    bool v6, struct view *v)
{
	__builtin_memset(v, 0, sizeof(*v));
	v->l3 = l3;
	if (skb->len < l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)))
		return KIND_MALFORMED;
	return v6 ? read_ipv6(skb, c, v) : read_ipv4(skb, c, v);
}

#endif
