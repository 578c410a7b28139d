/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parsing of an sk_buff: one IP header with its options or extension headers,
 * including the Fairlead list, and then either ports or the kind of payload. Twice
 * for a tunnel.
 */
#ifndef FAIRLEAD_SKB_READ_H
#define FAIRLEAD_SKB_READ_H

#include "common.h"
#include "option.h"
#include "parse.h"

/* The typical size of headers before the data, and the maximum: two IPv6 headers, the
 * outer one with the longest list, and a transport header.
 */
#define HEADERS_MOST 138
#define HEADERS_MAX 320

/* Extension headers in IPv6: hop-by-hop, destination (twice), routing, fragment (RFC
 * 8200, 4.1), and one more.
 */
#define EXTENSIONS_MAX 6

enum kind {
	KIND_FOREIGN, /* not for us */
	KIND_MALFORMED,
	KIND_TRANSPORT, /* TCP, UDP or SCTP: t is complete */
	KIND_LATER,	/* a later fragment: t has no ports */
	KIND_ICMP,
	KIND_TUNNEL4, /* an IPv4 packet at l4: t has the addresses */
	KIND_TUNNEL6,
};

/* Chunks that parse.h does not name. */
#define SCTP_SHUTDOWN 7
#define SCTP_SHUTDOWN_ACK 8

/* What a segment or chunk indicates about its connection's state. */
enum view_flags {
	VIEW_OPENS = 1,	  /* SYN, INIT */
	VIEW_ACCEPTS = 2, /* SYN and ACK */
	VIEW_FIN = 4,
	VIEW_RESET = 8,	  /* RST, ABORT */
	VIEW_TAGGED = 16, /* not a connection state: the list ends with an authentication tag */
};

/* One IP header and its payload. */
struct view {
	struct tuple t;
	__u32 l3, l4;  /* offsets of the header and its payload */
	__u32 room;    /* bytes of the payload */
	__u32 id;      /* of a fragment */
	__u8 n;	       /* endpoints in the list */
	__u8 next;     /* next header field of the list's extension header (IPv6) */
	__u8 flags;    /* enum view_flags */
	__u8 ttl, tos; /* or hop limit and traffic class */
	bool v6;
	bool fragment;
	bool plain; /* no option, no extension header */
} __attribute__((aligned(8)));

/* Returns the offset of the list's first endpoint. */
static __always_inline __u32 list_at(const struct view *v)
{
	return v->l3 + (v->v6 ? sizeof(struct ipv6hdr) + OPTION6_HEAD
			      : sizeof(struct iphdr) + OPTION4_HEAD);
}

/* Includes SHUTDOWN and SHUTDOWN ACK: each side sends its own. */
static __always_inline __u8 chunk_flags(__u8 type)
{
	switch (type) {
	case SCTP_INIT:
		return VIEW_OPENS;
	case SCTP_ABORT:
		return VIEW_RESET;
	case SCTP_SHUTDOWN:
	case SCTP_SHUTDOWN_ACK:
	case SCTP_SHUTDOWN_COMPLETE:
		return VIEW_FIN;
	}
	return 0;
}

static __always_inline __u32 load_number(struct __sk_buff *skb, __u32 at)
{
	__be32 n = 0;

	bpf_skb_load_bytes(skb, at, &n, sizeof(n));
	return bpf_ntohl(n);
}

/* Returns the number that distinguishes two attempts to open a connection: the
 * sequence number of a SYN, the initiate tag of an INIT (RFC 9260, 3.3.2).
 */
static __always_inline __u32 opening_number(struct __sk_buff *skb, const struct view *v)
{
	if (v->t.proto == IPPROTO_SCTP)
		return load_number(skb, v->l4 + sizeof(struct sctphdr) + sizeof(struct sctp_chunk));
	return load_number(skb, v->l4 + offsetof(struct tcphdr, seq));
}

/* Reports whether a reply may be to such an attempt, and returns its number: for TCP
 * a SYN-ACK, for SCTP anything.
 */
static __always_inline bool answers_attempt(struct __sk_buff *skb, const struct view *v,
					    __u32 *number)
{
	if (v->t.proto == IPPROTO_SCTP) {
		*number = load_number(skb, v->l4 + offsetof(struct sctphdr, tag));
		return true;
	}
	*number = load_number(skb, v->l4 + offsetof(struct tcphdr, ack_seq)) - 1;
	return v->flags & VIEW_ACCEPTS;
}

/* Reports whether a reply to an attempt ends an older connection on the same ports:
 * SCTP does so when its own cookie returns; its INIT ACK leaves an older association
 * intact (RFC 9260, 5.2).
 */
static __always_inline bool ends_older(struct __sk_buff *skb, const struct view *v)
{
	__u8 chunk = 0;

	if (v->t.proto != IPPROTO_SCTP)
		return true;
	bpf_skb_load_bytes(skb, v->l4 + sizeof(struct sctphdr), &chunk, sizeof(chunk));
	return chunk == SCTP_COOKIE_ACK;
}

static __always_inline enum kind read_tcp(struct cursor *c, struct view *v, __u32 room)
{
	struct tcphdr *tcp = parse_tcp(c);

	if (!tcp || tcp->doff < 5 || tcp->doff * 4 > room)
		return KIND_MALFORMED;
	v->t.sport = tcp->source;
	v->t.dport = tcp->dest;
	v->flags |= tcp->syn ? (tcp->ack ? VIEW_ACCEPTS : VIEW_OPENS) : 0;
	v->flags |= (tcp->fin ? VIEW_FIN : 0) | (tcp->rst ? VIEW_RESET : 0);
	return KIND_TRANSPORT;
}

static __always_inline enum kind read_udp(struct cursor *c, struct view *v, __u32 room)
{
	struct udphdr *udp = parse_udp(c);

	if (!udp || room < sizeof(*udp))
		return KIND_MALFORMED;
	/* The first fragment contains the length of the whole datagram. */
	if (!v->fragment &&
	    (bpf_ntohs(udp->len) > room || (udp->len && bpf_ntohs(udp->len) < sizeof(*udp))))
		return KIND_MALFORMED;
	v->t.sport = udp->source;
	v->t.dport = udp->dest;
	return KIND_TRANSPORT;
}

static __always_inline enum kind read_sctp(struct cursor *c, struct view *v, __u32 room)
{
	struct sctphdr *sctp = cursor_take(c, sizeof(*sctp));
	struct sctp_chunk *chunk = cursor_take(c, sizeof(*chunk));

	if (!sctp || !chunk || room < sizeof(*sctp) + sizeof(*chunk))
		return KIND_MALFORMED;
	v->t.sport = sctp->source;
	v->t.dport = sctp->dest;
	v->flags |= chunk_flags(chunk->type);
	return KIND_TRANSPORT;
}

/* Reads the payload by its protocol. room is the payload's length. */
static __always_inline enum kind read_payload(struct cursor *c, struct view *v, __u32 room)
{
	v->room = room;
	switch (v->t.proto) {
	case IPPROTO_TCP:
		return read_tcp(c, v, room);
	case IPPROTO_UDP:
		return read_udp(c, v, room);
	case IPPROTO_SCTP:
		return read_sctp(c, v, room);
	case IPPROTO_IPIP:
		return KIND_TUNNEL4;
	case IPPROTO_IPV6:
		return KIND_TUNNEL6;
	case IPPROTO_ICMP:
		return v->v6 ? KIND_FOREIGN : KIND_ICMP;
	case IPPROTO_ICMPV6:
		return v->v6 ? KIND_ICMP : KIND_FOREIGN;
	}
	return KIND_FOREIGN;
}

/* Returns the length in a header, or 0 if the frame is shorter. The kernel's own
 * frames larger than 64 KiB have none (BIG TCP).
 */
static __always_inline __u32 read_length(struct __sk_buff *skb, __u32 claimed, __u32 left)
{
	if (claimed == 0 && skb->gso_size)
		return left;
	return claimed <= left ? claimed : 0;
}

/* Stores the result of endpoints_in. */
static __always_inline void view_list(struct view *v, __u32 n)
{
	v->n = n & LIST_ENDPOINTS;
	v->flags = n & LIST_TAGGED ? VIEW_TAGGED : 0;
}

/* Reads the header at v->l3. */
static __always_inline enum kind read_ipv4(struct __sk_buff *skb, struct cursor *c, struct view *v)
{
	struct iphdr *ip = parse_ipv4(c);
	__u32 header, len, more;

	if (!ip)
		return KIND_MALFORMED;
	header = ip->ihl * 4;
	len = read_length(skb, bpf_ntohs(ip->tot_len), skb->len - v->l3);
	if (len < header)
		return KIND_MALFORMED;
	v->plain = ip->ihl == 5;
	v->l4 = v->l3 + header;
	addr_from_v4_aligned(&v->t.src, ip->saddr);
	addr_from_v4_aligned(&v->t.dst, ip->daddr);
	v->t.proto = ip->protocol;
	v->ttl = ip->ttl;
	v->tos = ip->tos;
	if (ipv4_is_fragment(ip)) {
		v->fragment = true;
		v->id = ip->id;
	}
	if (v->fragment && ip->frag_off & bpf_htons(0x1fff))
		more = 1;
	else
		more = 0;
	if (!v->plain) {
		view_list(v, option4_count(c, ip));
		c->pos += header - sizeof(*ip);
	}
	return more ? KIND_LATER : read_payload(c, v, len - header);
}

/* Skips a fragment header. Returns true for a later fragment. */
static __always_inline bool read_fragment(struct view *v, const __be16 *head)
{
	__be32 id;

	if (!(head[1] & bpf_htons(0xfff9)))
		return false; /* an "atomic" fragment: the whole packet (RFC 6946) */
	__builtin_memcpy(&id, head + 2, sizeof(id));
	v->fragment = true;
	v->id = id;
	return head[1] & bpf_htons(0xfff8);
}

/* Skips the extension headers, starting with v->t.proto. */
static __always_inline enum kind read_extensions(struct cursor *c, struct view *v, __u32 room)
{
	bool later = false;

	for (int i = 0; i < EXTENSIONS_MAX && !later; i++) {
		__u8 *head = c->pos;
		__u32 bytes = 8;

		if (v->t.proto != IPPROTO_HOPOPTS && v->t.proto != IPPROTO_DSTOPTS &&
		    v->t.proto != IPPROTO_ROUTING && v->t.proto != IPPROTO_FRAGMENT)
			break;
		if ((void *)(head + 8) > c->end)
			return KIND_MALFORMED;
		if (v->t.proto == IPPROTO_FRAGMENT)
			later = read_fragment(v, (__be16 *)head);
		else
			bytes += head[1] * 8;
		if (bytes > room)
			return KIND_MALFORMED;
		v->plain = false;
		v->t.proto = head[0];
		v->l4 += bytes;
		room -= bytes;
		c->pos += bytes;
	}
	return later ? KIND_LATER : read_payload(c, v, room);
}

static __always_inline enum kind read_ipv6(struct __sk_buff *skb, struct cursor *c, struct view *v)
{
	struct ipv6hdr *ip = parse_ipv6(c);
	__u32 payload;

	if (!ip)
		return KIND_MALFORMED;
	payload = read_length(skb, bpf_ntohs(ip->payload_len), skb->len - v->l3 - sizeof(*ip));
	v->v6 = true;
	v->plain = true;
	v->l4 = v->l3 + sizeof(*ip);
	view_list(v, option6_count(c, ip, &v->next));
	v->t.proto = ip->nexthdr;
	addr_from_v6(&v->t.src, &ip->saddr);
	addr_from_v6(&v->t.dst, &ip->daddr);
	if (addrs_are_mapped(&v->t.src, &v->t.dst))
		return KIND_FOREIGN;
	v->ttl = ip->hop_limit;
	v->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	return read_extensions(c, v, payload);
}

/* Reads the header at l3, which is within HEADERS_MAX. */
__noinline enum kind read_ip(struct __sk_buff *skb, struct view *v, __u32 l3, bool v6)
{
	struct cursor c;

	if (!v)
		return KIND_FOREIGN;
	__builtin_memset(v, 0, sizeof(*v));
	if (l3 > HEADERS_MAX ||
	    skb->len < l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)))
		return KIND_MALFORMED;
	v->l3 = l3;
	cursor_init(&c, (void *)(long)skb->data + l3, (void *)(long)skb->data_end);
	return v6 ? read_ipv6(skb, &c, v) : read_ipv4(skb, &c, v);
}

/* Makes this many bytes of the frame accessible. Reports whether it had to pull them. */
static __always_inline bool reach(struct __sk_buff *skb, __u32 bytes)
{
	__u32 want = skb->len < bytes ? skb->len : bytes;

	return skb->data_end - skb->data < want && !bpf_skb_pull_data(skb, want);
}

/* Reads the first header of an Ethernet frame. */
static __always_inline enum kind read_outer(struct __sk_buff *skb, struct view *v)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	enum kind kind;

	if (!v6 && skb->protocol != bpf_htons(ETH_P_IP))
		return KIND_FOREIGN;
	reach(skb, HEADERS_MOST);
	kind = read_ip(skb, v, sizeof(struct ethhdr), v6);
	if (kind == KIND_MALFORMED && reach(skb, HEADERS_MAX))
		kind = read_ip(skb, v, sizeof(struct ethhdr), v6);
	return kind;
}

/* Reads the packet inside a tunnel. */
static __always_inline enum kind read_inner(struct __sk_buff *skb, __u32 l3, bool v6,
					    struct view *v)
{
	enum kind kind = read_ip(skb, v, l3, v6);

	if (kind == KIND_MALFORMED && reach(skb, HEADERS_MAX))
		kind = read_ip(skb, v, l3, v6);
	return kind;
}

/* IPv6 is never fragmented in transit. */
static __always_inline bool may_not_fragment(struct __sk_buff *skb, const struct view *v)
{
	__be16 frag_off = 0;

	if (v->v6)
		return true;
	bpf_skb_load_bytes(skb, v->l3 + offsetof(struct iphdr, frag_off), &frag_off,
			   sizeof(frag_off));
	return frag_off & bpf_htons(0x4000);
}

#endif
