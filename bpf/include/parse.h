/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parsing with a cursor: each step checks the bounds, gives the header where
 * the cursor stood and moves it behind. It works on data/data_end of XDP and
 * tc alike (in tc pull what may lie in fragments first). A step that returns
 * NULL has not moved the cursor.
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

/* The next bytes, a constant number, or NULL where the frame ends before. */
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

/* The fixed 20 bytes; options, if ihl says so, are where the cursor stands
 * then. Refused: another version, a header length below five words.
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

/* The common header of SCTP (RFC 9260, 3.1); linux has it for the kernel alone. */
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

/* More fragments to come, or an offset: not a whole datagram (RFC 791). */
static __always_inline bool ipv4_is_fragment(const struct iphdr *ip)
{
	return ip->frag_off & bpf_htons(0x3fff);
}

/* What a TCP or SCTP packet says about its connection's life. */
enum tcp_flags {
	TCP_OPENS = 1,	   /* SYN without ACK, INIT: a new connection */
	TCP_FINISHES = 2,  /* FIN or RST, ABORT or SHUTDOWN COMPLETE: the connection ends */
	TCP_CONTINUES = 4, /* ACK without SYN, any other chunk: both sides have spoken */
	TCP_RESETS = 8,	   /* RST, ABORT or SHUTDOWN COMPLETE: at once */
};

/* What a TCP header says that has these of FIN, SYN, RST and ACK, from bit 0 on,
 * at its place among those of all.
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
	 * what the verifier has to follow.
	 */
	const __u64 all = TCP_SAYS_4(0) | TCP_SAYS_4(4) | TCP_SAYS_4(8) | TCP_SAYS_4(12);
	__u8 bits = ((const __u8 *)tcp)[13];

	return all >> 4 * ((bits & 7) | (bits >> 1 & 8)) & 15;
}

/* By the first chunk. INIT and SHUTDOWN COMPLETE come alone (RFC 9260, 6.10); an
 * ABORT behind other chunks is not seen.
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

/* Who speaks to whom. The key of every flow table; no hole, no padding that is
 * not named, so that it hashes as it is.
 */
struct tuple {
	struct addr src;
	struct addr dst;
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 zero[3];
};

/* A TCP, UDP or SCTP packet, read once. */
struct packet {
	struct tuple t;
	__u16 len;	/* of the IP packet, host order */
	__u8 flags;	/* enum tcp_flags, 0 for UDP */
	__u8 ttl;	/* or hop limit */
	__u8 tos;	/* or traffic class */
	__u8 malformed; /* lengths inside do not fit: to be dropped if it is ours */
};

/* In malformed: it is longer than what is left of the frame, as far as was said. */
#define PACKET_CUT 2

/* One where less is less than more, of numbers far below 2^31; no branch. */
static __always_inline __u32 is_less(__u32 less, __u32 more)
{
	return (less - more) >> 31;
}

/* Reads ports and flags; the transport's own length must fit into room bytes. */
static __always_inline bool parse_l4(struct cursor *c, struct packet *p, __u32 room)
{
	__u32 proto = p->t.proto;

	asm volatile("%0 ^= 0" : "+r"(proto)); /* the verifier is to forget whose it was */
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

/* Reads an IPv4 packet with no options into p, which lies at a multiple of
 * eight, from a frame that has so many bytes left: where ihl is not five it says
 * false, as for fragments and for other protocols than TCP, UDP and SCTP.
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

/* The same for IPv6 with no extension header. */
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
