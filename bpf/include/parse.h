/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parsing with a cursor: each step checks the bounds, returns the header at the
 * cursor and advances it. It works on data/data_end of XDP and tc (in tc, first pull
 * data that may be in fragments). A step that returns NULL has not moved the cursor.
 */
#ifndef FAIRLEAD_PARSE_H
#define FAIRLEAD_PARSE_H

#include "addr.h"
#include "common.h"

struct cursor {
	void *pos;
	void *end;
};

static __always_inline void cursor_init(struct cursor *c, void *data, void *data_end)
{
	c->pos = data;
	c->end = data_end;
}

/* Returns the next bytes, a constant number, or NULL if the frame is too short. */
static __always_inline void *cursor_take(struct cursor *c, unsigned int bytes)
{
	void *here = c->pos;

	if (here + bytes > c->end)
		return NULL;
	c->pos = here + bytes;
	return here;
}

static __always_inline struct ethhdr *parse_eth(struct cursor *c)
{
	return cursor_take(c, sizeof(struct ethhdr));
}

/* IEEE 802.1Q, or 802.1ad. */
static __always_inline bool is_vlan(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* Returns the fixed 20 bytes. If ihl indicates options, the cursor then points to
 * them. Rejects other versions and header lengths below five words.
 */
static __always_inline struct iphdr *parse_ipv4(struct cursor *c)
{
	struct iphdr *ip = c->pos;

	if ((void *)(ip + 1) > c->end || ip->version != 4 || ip->ihl < 5)
		return NULL;
	c->pos = ip + 1;
	return ip;
}

static __always_inline struct ipv6hdr *parse_ipv6(struct cursor *c)
{
	struct ipv6hdr *ip = c->pos;

	if ((void *)(ip + 1) > c->end || ip->version != 6)
		return NULL;
	c->pos = ip + 1;
	return ip;
}

static __always_inline struct tcphdr *parse_tcp(struct cursor *c)
{
	return cursor_take(c, sizeof(struct tcphdr));
}

static __always_inline struct udphdr *parse_udp(struct cursor *c)
{
	return cursor_take(c, sizeof(struct udphdr));
}

/* The common header of SCTP (RFC 9260, 3.1). Linux defines it only for the kernel. */
struct sctphdr {
	__be16 source;
	__be16 dest;
	__be32 tag;
	__le32 checksum; /* CRC32c of header and chunks: no addresses */
};

struct sctp_chunk {
	__u8 type;
	__u8 flags;
	__be16 length;
};

enum sctp_chunk_type {
	SCTP_INIT = 1,
	SCTP_INIT_ACK = 2,
	SCTP_ABORT = 6,
	SCTP_COOKIE_ACK = 11,
	SCTP_SHUTDOWN_COMPLETE = 14,
};

/* More fragments follow, or an offset: not a whole datagram (RFC 791). */
static __always_inline bool ipv4_is_fragment(const struct iphdr *ip)
{
	return ip->frag_off & bpf_htons(0x3fff);
}

/* What a TCP or SCTP packet indicates about its connection's state. */
enum tcp_flags {
	TCP_OPENS = 1,	   /* SYN without ACK, INIT: a new connection */
	TCP_FINISHES = 2,  /* FIN or RST, ABORT or SHUTDOWN COMPLETE: the connection ends */
	TCP_CONTINUES = 4, /* ACK without SYN, any other chunk: both sides have sent */
	TCP_RESETS = 8,	   /* RST, ABORT or SHUTDOWN COMPLETE: immediately */
};

/* The flags of a TCP header with these bits of FIN, SYN, RST and ACK, from bit 0 on,
 * shifted to their place in the table of all.
 */
#define TCP_SAYS(bits)                                                                             \
	((__u64)(((bits & 10) == 2 ? TCP_OPENS : 0) | (bits & 5 ? TCP_FINISHES : 0) |              \
		 ((bits & 10) == 8 ? TCP_CONTINUES : 0) | (bits & 4 ? TCP_RESETS : 0))             \
	 << 4 * bits)
#define TCP_SAYS_4(bits)                                                                           \
	(TCP_SAYS(bits) | TCP_SAYS((bits + 1)) | TCP_SAYS((bits + 2)) | TCP_SAYS((bits + 3)))

static __always_inline __u8 tcp_flags_of(const struct tcphdr *tcp)
{
	/* FIN, SYN, RST, PSH, ACK from bit 0 on. Without branches: each would double
	 * the verifier's paths.
	 */
	const __u64 all = TCP_SAYS_4(0) | TCP_SAYS_4(4) | TCP_SAYS_4(8) | TCP_SAYS_4(12);
	__u8 bits = ((const __u8 *)tcp)[13];

	return all >> 4 * ((bits & 7) | (bits >> 1 & 8)) & 15;
}

/* From the first chunk. INIT and SHUTDOWN COMPLETE are not bundled (RFC 9260, 6.10).
 * An ABORT after other chunks is not recognized.
 */
static __always_inline __u8 sctp_flags_of(__u8 chunk_type)
{
	switch (chunk_type) {
	case SCTP_INIT:
		return TCP_OPENS;
	case SCTP_INIT_ACK:
		return 0;
	case SCTP_ABORT:
	case SCTP_SHUTDOWN_COMPLETE:
		return TCP_FINISHES | TCP_RESETS;
	}
	return TCP_CONTINUES;
}

/* Source and destination of a packet. The key of every flow table. No holes and no
 * unnamed padding, so that it can be hashed directly.
 */
struct tuple {
	struct addr src;
	struct addr dst;
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 zero[3];
};

/* A TCP, UDP or SCTP packet, parsed once. */
struct packet {
	struct tuple t;
	__u16 len;	/* of the IP packet, host order */
	__u8 flags;	/* enum tcp_flags, 0 for UDP */
	__u8 ttl;	/* or hop limit */
	__u8 tos;	/* or traffic class */
	__u8 malformed; /* inconsistent lengths inside: drop it if it is ours */
};

/* In malformed: it is longer than the indicated rest of the frame. */
#define PACKET_CUT 2

/* Returns 1 if less is less than more, for numbers far below 2^31, without a branch. */
static __always_inline __u32 is_less(__u32 less, __u32 more)
{
	return (less - more) >> 31;
}

/* Reads ports and flags. The transport's own length must fit room bytes. */
static __always_inline bool parse_l4(struct cursor *c, struct packet *p, __u32 room)
{
	__u32 proto = p->t.proto;

	asm volatile("%0 ^= 0" : "+r"(proto)); /* makes the verifier forget its origin */
	if (proto == IPPROTO_TCP) {
		struct tcphdr *tcp = parse_tcp(c);
		__u32 bytes;

		if (!tcp)
			return false;
		p->t.sport = tcp->source;
		p->t.dport = tcp->dest;
		p->flags = tcp_flags_of(tcp);
		bytes = (((const __u8 *)tcp)[12] >> 4) * 4;
		p->malformed |= is_less(bytes, sizeof(*tcp)) | is_less(room, bytes);
		return true;
	}
	if (proto == IPPROTO_UDP) {
		struct udphdr *udp = parse_udp(c);
		__u32 bytes;

		if (!udp)
			return false;
		p->t.sport = udp->source;
		p->t.dport = udp->dest;
		p->flags = 0;
		bytes = bpf_ntohs(udp->len);
		p->malformed |= is_less(bytes, sizeof(*udp)) | is_less(room, bytes);
		return true;
	}
	if (proto == IPPROTO_SCTP) {
		struct sctphdr *sctp = cursor_take(c, sizeof(*sctp));
		struct sctp_chunk *chunk = cursor_take(c, sizeof(*chunk));

		if (!sctp || !chunk)
			return false;
		p->t.sport = sctp->source;
		p->t.dport = sctp->dest;
		p->flags = sctp_flags_of(chunk->type);
		p->malformed |= is_less(room, sizeof(*sctp) + sizeof(*chunk));
		return true;
	}
	return false;
}

/* Parses an IPv4 packet without options into p, aligned to eight bytes. left is the
 * number of remaining bytes in the frame. Returns false if ihl is not five, for
 * fragments, and for protocols other than TCP, UDP and SCTP.
 */
static __always_inline bool parse_packet_v4(struct cursor *c, struct packet *p, __u32 left)
{
	struct iphdr *ip = parse_ipv4(c);

	if (!ip || ip->ihl != 5 || ipv4_is_fragment(ip))
		return false;
	__builtin_memset(p, 0, sizeof(*p));
	addr_from_v4_aligned(&p->t.src, ip->saddr);
	addr_from_v4_aligned(&p->t.dst, ip->daddr);
	p->t.proto = ip->protocol;
	p->len = bpf_ntohs(ip->tot_len);
	p->ttl = ip->ttl;
	p->tos = ip->tos;
	p->malformed = is_less(left, p->len) * PACKET_CUT |
		       is_less(p->len, sizeof(*ip) + sizeof(struct udphdr));
	return parse_l4(c, p, p->len - sizeof(*ip));
}

/* The same for IPv6 without extension headers. */
static __always_inline bool parse_packet_v6(struct cursor *c, struct packet *p, __u32 left)
{
	struct ipv6hdr *ip = parse_ipv6(c);
	__u32 payload;

	if (!ip)
		return false;
	__builtin_memset(p, 0, sizeof(*p));
	addr_copy_aligned(&p->t.src, &ip->saddr);
	addr_copy_aligned(&p->t.dst, &ip->daddr);
	p->t.proto = ip->nexthdr;
	payload = bpf_ntohs(ip->payload_len);
	p->len = payload + sizeof(*ip);
	p->ttl = ip->hop_limit;
	p->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	p->malformed = is_less(left, payload + sizeof(*ip)) * PACKET_CUT |
		       is_less(0xffff, payload + sizeof(*ip)) |
		       is_less(payload, sizeof(struct udphdr));
	return parse_l4(c, p, payload);
}

static __always_inline bool parse_packet(struct cursor *c, struct packet *p, __u32 left, bool v6)
{
	return v6 ? parse_packet_v6(c, p, left) : parse_packet_v4(c, p, left);
}

#endif
