/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads TCP segments with their options, and builds segments in place of received
 * ones: with up to twenty bytes of options, without data.
 */
#ifndef FAIRLEAD_BALANCER_SYN_PACKET_H
#define FAIRLEAD_BALANCER_SYN_PACKET_H

#include "csum.h"
#include "egress.h"
#include "stateful.h"
#include "syn_cookie.h"
#include "vlan.h"

#define TCP_OPTIONS_MAX 40
/* The largest segment built: IPv6, TCP, and the options of a SYN. */
#define SYN_OUT_MAX 80
#define SYN_TTL 64
/* The window scale sent to clients. */
#define SYN_OWN_SCALE 7

enum tcp_option {
	TCP_OPTION_END = 0,
	TCP_OPTION_NOP = 1,
	TCP_OPTION_MSS = 2,
	TCP_OPTION_SCALE = 3,
	TCP_OPTION_SACK_OK = 4,
	TCP_OPTION_SACK = 5,
	TCP_OPTION_TIMESTAMPS = 8,
};

/* Bits of byte 13 in a TCP header. */
#define TCP_BYTE_FIN 0x01
#define TCP_BYTE_SYN 0x02
#define TCP_BYTE_RST 0x04
#define TCP_BYTE_ACK 0x10

/* A received TCP header and its decoded options. */
struct segment {
	struct tcphdr tcp;
	__u8 options[TCP_OPTIONS_MAX];
	__u32 bytes;  /* of options */
	__u32 walked; /* as in options.h */
	struct syn_options syn;
	bool timestamps;
	__be32 ts_value;
	__be32 ts_echo;
};

/* A segment to build: everything not set is zero. */
struct syn_made {
	__u32 seq; /* host order, like the next ones */
	__u32 ack;
	__u32 ts_value;
	__u32 ts_echo;
	__u16 window;
	__u8 bits; /* of byte 13 */
	bool timestamps;
	bool opens; /* with MSS and so on */
	struct syn_options syn;
};

/* This CPU's working state. */
struct syn_scratch {
	struct packet p __attribute__((aligned(8)));
	struct segment in;
	struct segment to; /* the translated header */
	struct opening o __attribute__((aligned(8)));
	struct syn_flow flow __attribute__((aligned(8)));
	struct syn_made made;
	struct syn_options client; /* decoded from a cookie */
	struct tuple turned __attribute__((aligned(8)));
	__u32 l3; /* offset of the IP header */
	__u32 l4;
	__u32 frame;	/* bytes */
	__u32 admitted; /* for the slow_path program: checked here */
	__u8 out[SYN_OUT_MAX] __attribute__((aligned(8)));
	__u8 l2[24];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, sizeof(struct syn_scratch));
} syn_scratch SEC(".maps");

static __always_inline struct syn_scratch *syn_scratch_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&syn_scratch, &zero);
}

/* Starts a new segment. */
static __always_inline struct syn_made *syn_make(struct syn_scratch *s, __u8 bits)
{
	struct syn_made *m = &s->made;

	__builtin_memset(m, 0, sizeof(*m));
	m->bits = bits;
	return m;
}

static __always_inline bool syn_tagged(const struct syn_scratch *s)
{
	return s->l3 != sizeof(struct ethhdr);
}

/* Finds the TCP packet in a frame, within up to two VLAN tags. Returns false if it
 * has IP options or extension headers, or is a fragment.
 */
static __always_inline bool syn_find(struct xdp_md *ctx, struct syn_scratch *s, bool *v6)
{
	__u32 left, tags = 0;
	struct ethhdr *eth;
	struct vlan_tag *tag;
	struct cursor c;
	__be16 proto;

	s->frame = bpf_xdp_get_buff_len(ctx);
	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	eth = parse_eth(&c);
	if (!eth)
		return false;
	proto = eth->h_proto;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (!is_vlan(proto))
			continue;
		tag = cursor_take(&c, sizeof(*tag));
		if (!tag)
			return false;
		proto = tag->proto;
		tags++;
	}
	s->l3 = sizeof(*eth) + tags * sizeof(*tag);
	left = s->frame - s->l3;
	*v6 = proto == bpf_htons(ETH_P_IPV6);
	if (*v6)
		return parse_packet_v6(&c, &s->p, left);
	return proto == bpf_htons(ETH_P_IP) && parse_packet_v4(&c, &s->p, left);
}

/* Processes one option. A nonzero result ends the loop. */
static long segment_option(__u32 i __attribute__((unused)), void *arg)
{
	struct segment *g = *(struct segment **)arg;
	__u32 at = g->walked, len;
	const __u8 *o;

	if (at >= g->bytes || at >= TCP_OPTIONS_MAX)
		return 1;
	o = g->options + at;
	if (o[0] == TCP_OPTION_END)
		return 1;
	if (o[0] == TCP_OPTION_NOP) {
		g->walked = at + 1;
		return 0;
	}
	if (at >= TCP_OPTIONS_MAX - 1)
		return 1;
	len = o[1];
	if (len < 2 || at + len > g->bytes)
		return 1;
	g->walked = at + len;
	if (o[0] == TCP_OPTION_SACK_OK)
		g->syn.sack = true;
	if (o[0] == TCP_OPTION_SCALE && at <= TCP_OPTIONS_MAX - 3 && len == 3)
		g->syn.scale = o[2] > SYN_SCALE_MAX ? SYN_SCALE_MAX : o[2];
	if (o[0] == TCP_OPTION_MSS && at <= TCP_OPTIONS_MAX - 4 && len == 4)
		g->syn.mss = (__u16)o[2] << 8 | o[3];
	if (o[0] == TCP_OPTION_TIMESTAMPS && at <= TCP_OPTIONS_MAX - 10 && len == 10) {
		g->timestamps = true;
		__builtin_memcpy(&g->ts_value, o + 2, sizeof(g->ts_value));
		__builtin_memcpy(&g->ts_echo, o + 6, sizeof(g->ts_echo));
	}
	return 0;
}

/* Loads a TCP header with its options. */
static __always_inline bool segment_load(struct xdp_md *ctx, struct segment *g, __u32 l4)
{
	__u32 bytes;

	if (bpf_xdp_load_bytes(ctx, l4, &g->tcp, sizeof(g->tcp)) || g->tcp.doff < 5)
		return false;
	bytes = g->tcp.doff * 4 - sizeof(g->tcp);
	g->bytes = bytes;
	if (!bytes)
		return true;
	bytes = within(bytes, 64);
	return bytes <= TCP_OPTIONS_MAX &&
	       !bpf_xdp_load_bytes(ctx, l4 + sizeof(g->tcp), g->options, bytes);
}

/* Decodes its options. */
__noinline int segment_read(struct syn_scratch *s)
{
	struct segment *g;

	if (!s)
		return -1;
	g = &s->in;
	g->walked = 0;
	g->timestamps = false;
	g->syn.mss = 536; /* RFC 9293, 3.7.1 */
	g->syn.scale = SYN_NO_SCALE;
	g->syn.sack = false;
	bpf_loop(TCP_OPTIONS_MAX, segment_option, &g, 0);
	return 0;
}

/* Writes the options of a SYN or SYN-ACK and returns their size, twelve or twenty
 * bytes.
 */
static __always_inline __u32 syn_put_opening(__u8 *to, const struct syn_made *m)
{
	__be32 *word = (__be32 *)to;
	__u32 at = 2;

	word[0] = bpf_htonl(TCP_OPTION_MSS << 24 | 4 << 16 | m->syn.mss);
	word[1] = bpf_htonl(
		TCP_OPTION_NOP << 24 | TCP_OPTION_NOP << 16 |
		(m->syn.sack ? TCP_OPTION_SACK_OK << 8 | 2 : TCP_OPTION_NOP << 8 | TCP_OPTION_NOP));
	if (m->timestamps) {
		__u32 sack = m->syn.sack ? TCP_OPTION_SACK_OK << 24 | 2 << 16
					 : TCP_OPTION_NOP << 24 | TCP_OPTION_NOP << 16;

		word[1] = bpf_htonl(sack | TCP_OPTION_TIMESTAMPS << 8 | 10);
		word[2] = bpf_htonl(m->ts_value);
		word[3] = bpf_htonl(m->ts_echo);
		at = 4;
	}
	word[at] = bpf_htonl(TCP_OPTION_NOP << 24 | TCP_OPTION_NOP << 16 | TCP_OPTION_NOP << 8 |
			     TCP_OPTION_NOP);
	if (m->syn.scale != SYN_NO_SCALE)
		word[at] = bpf_htonl(TCP_OPTION_NOP << 24 | TCP_OPTION_SCALE << 16 | 3 << 8 |
				     m->syn.scale);
	return at * 4 + 4;
}

static __always_inline __u32 syn_put_options(__u8 *to, const struct syn_made *m)
{
	__be32 *word = (__be32 *)to;

	if (m->opens)
		return syn_put_opening(to, m);
	if (!m->timestamps)
		return 0;
	word[0] = bpf_htonl(TCP_OPTION_NOP << 24 | TCP_OPTION_NOP << 16 |
			    TCP_OPTION_TIMESTAMPS << 8 | 10);
	word[1] = bpf_htonl(m->ts_value);
	word[2] = bpf_htonl(m->ts_echo);
	return 12;
}

/* Returns the sum of a pseudo-header. */
static __always_inline __u64 syn_pseudo(const struct tuple *t, __u32 bytes, bool v6)
{
	__u64 sum = bpf_htonl(IPPROTO_TCP) + (__u64)bpf_htonl(bytes);

	sum += (__u64)t->src.word[3] + t->dst.word[3];
	if (v6)
		sum += (__u64)t->src.word[0] + t->src.word[1] + t->src.word[2] + t->dst.word[0] +
		       t->dst.word[1] + t->dst.word[2];
	return sum;
}

/* Builds a segment of a tuple after the place of its IP header. Returns its size,
 * negative on failure.
 */
static __always_inline int syn_put_tcp(struct syn_scratch *s, const struct tuple *t,
				       const struct syn_made *m, bool v6)
{
	__u8 *l4 = s->out + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	struct tcphdr *tcp = (struct tcphdr *)l4;
	__u32 bytes = sizeof(*tcp) + syn_put_options(l4 + sizeof(*tcp), m);
	__s64 sum;

	tcp->source = t->sport;
	tcp->dest = t->dport;
	tcp->seq = bpf_htonl(m->seq);
	tcp->ack_seq = bpf_htonl(m->ack);
	l4[12] = bytes << 2;
	l4[13] = m->bits;
	tcp->window = bpf_htons(m->window);
	tcp->check = 0;
	tcp->urg_ptr = 0;
	sum = bpf_csum_diff(NULL, 0, (__be32 *)l4, bytes, 0);
	if (sum < 0)
		return -1;
	tcp->check = ~csum_fold(sum + syn_pseudo(t, bytes, v6));
	return bytes;
}

static __always_inline void syn_put_ip(struct syn_scratch *s, const struct tuple *t, __u32 bytes,
				       bool v6)
{
	if (v6) {
		struct ipv6hdr *ip = (struct ipv6hdr *)s->out;

		*(__be32 *)ip = bpf_htonl(6u << 28);
		ip->payload_len = bpf_htons(bytes);
		ip->nexthdr = IPPROTO_TCP;
		ip->hop_limit = SYN_TTL;
		addr_to_v6(&ip->saddr, &t->src);
		addr_to_v6(&ip->daddr, &t->dst);
		return;
	}
	struct iphdr *ip = (struct iphdr *)s->out;

	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = 5;
	ip->tot_len = bpf_htons(sizeof(*ip) + bytes);
	ip->frag_off = bpf_htons(0x4000); /* RFC 6864, 4.1 */
	ip->ttl = SYN_TTL;
	ip->protocol = IPPROTO_TCP;
	ip->saddr = addr_to_v4(&t->src);
	ip->daddr = addr_to_v4(&t->dst);
	ip->check = csum_ipv4(ip, sizeof(*ip));
}

/* The minimum Ethernet frame, without its checksum. */
#define FRAME_MIN 60

/* Replaces the packet with s->made, a segment of the tuple s->turned, after the
 * frame's own Ethernet header. Returns false if there is no room.
 */
__noinline bool syn_put(struct xdp_md *ctx, struct syn_scratch *s, bool v6)
{
	__u32 header = v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr), l3, want, bytes;
	const struct syn_made *m;
	const struct tuple *t;
	int tcp;

	if (!s)
		return false;
	m = &s->made;
	t = &s->turned;
	tcp = v6 ? syn_put_tcp(s, t, m, true) : syn_put_tcp(s, t, m, false);
	if (tcp < 0)
		return false;
	if (v6)
		syn_put_ip(s, t, tcp, true);
	else
		syn_put_ip(s, t, tcp, false);
	bytes = header + tcp;
	l3 = within(s->l3, 32);
	want = l3 + bytes < FRAME_MIN ? FRAME_MIN : l3 + bytes;
	if (want != s->frame && bpf_xdp_adjust_tail(ctx, (int)want - (int)s->frame))
		return false;
	s->frame = want;
	bytes = within(bytes, 128);
	return bytes <= SYN_OUT_MAX && !bpf_xdp_store_bytes(ctx, l3, s->out, bytes);
}

/* Sends the frame back to its sender. */
static __always_inline int syn_return(struct xdp_md *ctx)
{
	__u8 macs[2 * ETH_ALEN], turned[2 * ETH_ALEN];

	if (bpf_xdp_load_bytes(ctx, 0, macs, sizeof(macs)))
		return drop(ctx, DROP_NO_HEADROOM);
	__builtin_memcpy(turned, macs + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(turned + ETH_ALEN, macs, ETH_ALEN);
	if (bpf_xdp_store_bytes(ctx, 0, turned, sizeof(turned)))
		return drop(ctx, DROP_NO_HEADROOM);
	return go(WAY_BACK, ctx->ingress_ifindex);
}

/* Answers the packet with the segment s->made, from the packet's destination. Global,
 * like all that follow, so that the verifier checks each once and their stack frames
 * do not add up.
 */
__noinline int syn_answer(struct xdp_md *ctx, struct syn_scratch *s, bool v6)
{
	struct tuple *t;

	if (!ctx || !s)
		return XDP_ABORTED;
	t = &s->turned;
	*t = s->p.t;
	t->src = s->p.t.dst;
	t->dst = s->p.t.src;
	t->sport = s->p.t.dport;
	t->dport = s->p.t.sport;
	if (!syn_put(ctx, s, v6))
		return drop(ctx, DROP_NO_HEADROOM);
	return syn_return(ctx);
}

#endif
