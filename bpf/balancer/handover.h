/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Handover: a draining load balancer keeps its flows. If a packet's flow is unknown
 * here, the packet goes to the draining load balancers one after the other, in
 * IP-in-IP from our own address to theirs. The one that knows the flow serves it. The
 * last in the list is the requesting load balancer, where the flow is then a new one.
 *
 *   B, unknown -> [D2, B] D1, unknown -> [B] D2, unknown -> [B] B: new
 *
 * The list is the Fairlead option (option.h) of the outer header, with zero ports:
 * the load balancers to query next. B stays in it, so that B recognizes the packet. D
 * accepts only packets to its own frontends that track flows, and slow path packets,
 * whose frontend is not known yet, to a VIP. It accepts packets only from known load
 * balancers, with only known ones in the list, and applies the frontend's policy
 * (policy.h) to the inner packet. Slow path packets, and those too big to hand on, go
 * to the slow_path program (slow_path_handover.h).
 */
#ifndef FAIRLEAD_BALANCER_HANDOVER_H
#define FAIRLEAD_BALANCER_HANDOVER_H

#include "edit.h"
#include "frontend.h"
#include "policy.h"
#include "stateful.h"
#include "no_frontend.h"
#include "capture.h"

/* The requesting load balancer is the last of a list. */
#define HANDOVER_PEERS (CHAIN_MAX - 1)

/* Own addresses of the draining load balancers, of one family. */
struct handover_peers {
	__u32 n;
	struct addr who[HANDOVER_PEERS];
};

/* IPv4, IPv6. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct handover_peers);
} handover_peers SEC(".maps");

/* Own addresses of all other load balancers, from the source of truth. The value is
 * unused.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct addr);
	__type(value, __u8);
} balancers SEC(".maps");

/* A packet in the handover program. */
struct handover {
	struct packet p;
	struct addr from; /* the sender of the outer header */
	struct server to; /* the load balancer to query next */
	struct next_hop way;
	struct chain list; /* those after it */
	struct addr next[CHAIN_MAX];
	__u32 n;     /* in next */
	__u32 inner; /* offset of the inner packet in the frame */
	__u16 ethertype;
	bool outer6;
	bool ports; /* the list has ports: it is for a DSR agent */
	__u8 rest;  /* PACKET_ASK or PACKET_LAST, if the packet was handed to us */
	__u8 on;    /* the same, for the slow_path program, which continues it */
	__u8 header[sizeof(struct ipv6hdr)];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, sizeof(struct handover));
} handover_scratch SEC(".maps");

static __always_inline struct handover *handover_scratch_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&handover_scratch, &zero);
}

static __always_inline struct frontend *handover_frontend(const struct packet *p)
{
	struct frontend *f = frontend_lookup(&p->t.dst, p->t.dport, p->t.proto);

	return f ? f : frontend_wide(p);
}

static __always_inline bool handover_is_own(const struct addr *a)
{
	return addr_equal(a, &set.own4) || addr_equal(a, &set.own6);
}

/* Writes the endpoints of next, starting with first, in the option's format. */
static __always_inline void handover_endpoints(struct handover *h, __u32 first)
{
	struct chain *c = &h->list;
	__u64 sum = 0;

	__builtin_memset(c, 0, sizeof(*c));
	c->v6 = h->outer6;
	for (__u32 i = 0; i < CHAIN_MAX; i++) {
		__u32 from = first + i;
		const struct addr *a;

		if (from >= h->n || from >= CHAIN_MAX)
			break;
		a = &h->next[from];
		if (h->outer6) {
			__builtin_memcpy(c->bytes + i * ENDPOINT6_SIZE, a, sizeof(*a));
		} else {
			__builtin_memcpy(c->bytes + i * ENDPOINT4_SIZE, &a->word[3], 4);
			sum += a->word[3];
		}
		c->n = i + 1;
	}
	c->sum = csum_fold(sum);
}

/* Makes the first of next the choice, and the others its chain. */
static __always_inline void handover_choice(struct handover *h, struct choice *ch,
					    const struct tuple *flow)
{
	h->to.addr = h->next[0];
	handover_endpoints(h, h->n > 1); /* those after the first, or only that one */
	h->way.tick = 0;
	ch->server = &h->to;
	ch->hop = &h->way;
	ch->chain = &h->list;
	ch->hash = flow_hash(flow);
}

/* Sends the packet, now without outer header, to the first of next. */
static __noinline int handover_send(struct xdp_md *ctx, struct handover *h, bool v6)
{
	struct choice ch;

	handover_choice(h, &ch, &h->p.t);
	return tunnel(ctx, &h->p, false, &ch, v6);
}

/* Parses the packet at the start of the frame. */
static __always_inline int handover_parse(struct xdp_md *ctx, struct handover *h, bool *v6)
{
	__u32 left = bpf_xdp_get_buff_len(ctx) - sizeof(struct ethhdr);
	struct ethhdr *eth;
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	eth = parse_eth(&c);
	if (!eth)
		return false;
	*v6 = eth->h_proto == bpf_htons(ETH_P_IPV6);
	if (*v6)
		return parse_packet_v6(&c, &h->p, left);
	return eth->h_proto == bpf_htons(ETH_P_IP) && parse_packet_v4(&c, &h->p, left);
}

/* Lists all draining load balancers, then ourselves, in next. Returns false if none
 * drains.
 */
static __always_inline bool handover_begin(struct handover *h)
{
	struct handover_peers *peers;
	__u32 family = 0, n = 0;

	if (addr_is_zero(&set.own4))
		family = 1;
	peers = bpf_map_lookup_elem(&handover_peers, &family);
	if (peers && !peers->n) {
		family ^= 1;
		peers = bpf_map_lookup_elem(&handover_peers, &family);
	}
	if (!peers || !peers->n)
		return false;
	h->outer6 = family;
	while (n < HANDOVER_PEERS && n < peers->n) {
		h->next[n] = peers->who[n];
		n++;
	}
	h->next[n] = family ? set.own6 : set.own4;
	h->n = n + 1;
	return true;
}

/* Forwards a packet to one of our frontends whose flow we do not know. */
static __noinline int handover_out(struct xdp_md *ctx, struct handover *h, bool v6)
{
	h->rest = PACKET_ADMITTED; /* if it is too big, it must not come back */
	if (!handover_begin(h))
		return drop(ctx, DROP_NO_BACKEND);
	return handover_send(ctx, h, v6);
}

static __always_inline bool handover_ethertype(struct handover *h, __u8 proto)
{
	h->ethertype = proto == IPPROTO_IPIP   ? bpf_htons(ETH_P_IP)
		       : proto == IPPROTO_IPV6 ? bpf_htons(ETH_P_IPV6)
					       : 0;
	return h->ethertype;
}

/* Reads the number of endpoints and the tag of a list, which must fill exactly these
 * bytes with its framing. Returns false if it is no valid list.
 */
static __always_inline bool handover_count(struct xdp_md *ctx, struct handover *h, __u32 listed,
					   __u32 bytes, bool v6)
{
	const __u32 at = sizeof(struct ethhdr) + (v6 ? sizeof(struct ipv6hdr) + OPTION6_HEAD
						     : sizeof(struct iphdr) + OPTION4_HEAD);
	struct auth_scratch *s = auth_scratch_get();
	__u32 n = endpoints_in(listed, v6);

	h->n = n & LIST_ENDPOINTS;
	if (!s || h->n == 0 || h->n > CHAIN_MAX || option_bytes_found(n, v6) != bytes)
		return false;
	s->tagged = n & LIST_TAGGED;
	return !s->tagged ||
	       !bpf_xdp_load_bytes(ctx, at + h->n * ENDPOINT_SIZE(v6), &s->tag, sizeof(s->tag));
}

/* Reads the list of an outer IPv4 header. Returns false without a list. */
static __always_inline bool handover_read_v4(struct xdp_md *ctx, struct handover *h)
{
	struct iphdr *ip = (struct iphdr *)h->header;
	const __u32 at = sizeof(struct ethhdr) + sizeof(*ip);
	struct addr dst;
	__u8 head[OPTION4_HEAD];

	if (bpf_xdp_load_bytes(ctx, sizeof(struct ethhdr), ip, sizeof(*ip)) ||
	    bpf_xdp_load_bytes(ctx, at, head, sizeof(head)))
		return false;
	addr_from_v4(&h->from, ip->saddr);
	addr_from_v4(&dst, ip->daddr);
	if (ip->ihl < 7 || head[0] != OPTION4_TYPE || !handover_is_own(&dst))
		return false;
	if (!handover_count(ctx, h, head[1] - OPTION4_HEAD, ip->ihl * 4 - sizeof(*ip), false))
		return false;
	h->ports = false;
	for (__u32 i = 0; i < CHAIN_MAX; i++) {
		__u32 from = at + OPTION4_HEAD + i * ENDPOINT4_SIZE;
		struct {
			__be32 addr;
			__be16 port;
		} __attribute__((packed)) one = {};

		if (i < h->n && bpf_xdp_load_bytes(ctx, from, &one, sizeof(one)))
			return false;
		addr_from_v4(&h->next[i], one.addr);
		h->ports |= one.port != 0;
	}
	h->outer6 = false;
	h->inner = sizeof(struct ethhdr) + ip->ihl * 4;
	return handover_ethertype(h, ip->protocol);
}

static __always_inline bool handover_read_v6(struct xdp_md *ctx, struct handover *h)
{
	struct ipv6hdr *ip = (struct ipv6hdr *)h->header;
	const __u32 at = sizeof(struct ethhdr) + sizeof(*ip);
	struct addr dst;
	__u8 head[OPTION6_HEAD];

	if (bpf_xdp_load_bytes(ctx, sizeof(struct ethhdr), ip, sizeof(*ip)) ||
	    bpf_xdp_load_bytes(ctx, at, head, sizeof(head)))
		return false;
	addr_from_v6(&h->from, &ip->saddr);
	addr_from_v6(&dst, &ip->daddr);
	if (ip->nexthdr != IPPROTO_DSTOPTS || head[2] != OPTION6_TYPE || !handover_is_own(&dst))
		return false;
	if (!handover_count(ctx, h, head[3], (head[1] + 1u) * 8, true))
		return false;
	h->ports = false;
	for (__u32 i = 0; i < CHAIN_MAX; i++) {
		__u32 from = at + OPTION6_HEAD + i * ENDPOINT6_SIZE;
		__be16 port = 0;

		if (i < h->n &&
		    (bpf_xdp_load_bytes(ctx, from, &h->next[i], sizeof(h->next[i])) ||
		     bpf_xdp_load_bytes(ctx, from + sizeof(h->next[i]), &port, sizeof(port))))
			return false;
		h->ports |= port != 0;
	}
	h->outer6 = true;
	h->inner = at + (head[1] + 1u) * 8;
	return handover_ethertype(h, head[0]);
}

/* Reads the inner packet's header into h->p. Returns false if it is missing or
 * needs the slow path.
 */
static __always_inline bool handover_peek(struct xdp_md *ctx, struct handover *h)
{
	__builtin_memset(&h->p, 0, sizeof(h->p));
	if (h->ethertype == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (struct iphdr *)h->header;

		if (bpf_xdp_load_bytes(ctx, h->inner, ip, sizeof(*ip)))
			return false;
		addr_from_v4(&h->p.t.src, ip->saddr);
		addr_from_v4(&h->p.t.dst, ip->daddr);
		h->p.t.proto = ip->protocol;
		return ip->ihl == 5 && !ipv4_is_fragment(ip) && has_ports(ip->protocol);
	}
	struct ipv6hdr *ip = (struct ipv6hdr *)h->header;

	if (bpf_xdp_load_bytes(ctx, h->inner, ip, sizeof(*ip)))
		return false;
	addr_from_v6(&h->p.t.src, &ip->saddr);
	addr_from_v6(&h->p.t.dst, &ip->daddr);
	if (addrs_are_mapped(&h->p.t.src, &h->p.t.dst)) {
		__builtin_memset(&h->p.t.dst, 0, sizeof(h->p.t.dst)); /* matches no frontend */
		return false;
	}
	h->p.t.proto = ip->nexthdr;
	return has_ports(ip->nexthdr);
}

/* Reports whether the inner packet is for us, before anything is removed. */
static __noinline bool handover_is_ours(struct xdp_md *ctx, struct handover *h)
{
	__u32 header =
		h->ethertype == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__be16 ports[2];
	struct frontend *f;

	if (!handover_peek(ctx, h)) {
		h->p.t.proto = 0; /* as a tag covers it then */
		return !h->ports && is_vip(&h->p.t.dst);
	}
	if (bpf_xdp_load_bytes(ctx, h->inner + header, ports, sizeof(ports)))
		return false;
	h->p.t.sport = ports[0];
	h->p.t.dport = ports[1];
	f = handover_frontend(&h->p);
	return f && f->flags & FRONTEND_STATEFUL;
}

static __always_inline bool handover_is_last(const struct handover *h)
{
	return h->n == 1 && handover_is_own(&h->next[0]);
}

/* Reports whether sender and list are known load balancers. We may be in the list
 * only as its single entry: otherwise the packet would come back.
 */
static __noinline bool handover_is_trusted(struct handover *h)
{
	if (!bpf_map_lookup_elem(&balancers, &h->from))
		return false;
	if (handover_is_last(h))
		return true;
	for (__u32 i = 0; i < CHAIN_MAX; i++)
		if (i < h->n && !bpf_map_lookup_elem(&balancers, &h->next[i]))
			return false;
	return true;
}

/* Returns 0 if the packet has another load balancer's tag or needs none, else the
 * drop reason. Global, so that the verifier checks it once. It reads h from the
 * scratch memory.
 */
__noinline int handover_unproven(void)
{
	struct auth_scratch *s = auth_scratch_get();
	struct handover *h = handover_scratch_get();

	if (!s || !h)
		return DROP_WRONG_AUTH_TAG;
	if (!s->tagged)
		return auth_policy == AUTH_REQUIRE ? DROP_NO_AUTH_TAG : 0;
	auth_packet(&h->p.t.src, &h->p.t.dst, &h->p);
	handover_endpoints(h, 0);
	__builtin_memcpy(s->list, h->list.bytes, CHAIN_BYTES);
	if (auth_cover(&h->from, h->outer6 ? &set.own6 : &set.own4, AUTH_OUTER, h->n))
		return DROP_WRONG_AUTH_TAG;
	return auth_is_right(s->tag) || auth_policy != AUTH_REQUIRE ? 0 : DROP_WRONG_AUTH_TAG;
}

/* Removes the outer header. */
static __always_inline bool handover_unwrap(struct xdp_md *ctx, struct handover *h)
{
	struct ethhdr eth;

	if (bpf_xdp_load_bytes(ctx, 0, &eth, sizeof(eth)))
		return false;
	eth.h_proto = h->ethertype;
	return !bpf_xdp_adjust_head(ctx, h->inner - sizeof(eth)) &&
	       !bpf_xdp_store_bytes(ctx, 0, &eth, sizeof(eth));
}

/* Handles a packet that was handed to us. */
static __noinline int handover_in(struct xdp_md *ctx, struct handover *h, bool outer6)
{
	struct frontend *f;
	int verdict;
	bool v6;

	if (outer6 ? !handover_read_v6(ctx, h) : !handover_read_v4(ctx, h))
		return XDP_PASS;
	if (!handover_is_ours(ctx, h))
		return XDP_PASS;
	if (!handover_is_trusted(h))
		return drop(ctx, DROP_UNKNOWN_BALANCER);
	if (auth_policy) {
		int why = handover_unproven();

		if (why)
			return drop(ctx, why);
	}
	h->rest = handover_is_last(h) ? PACKET_LAST : PACKET_ASK;
	if (!handover_unwrap(ctx, h))
		return drop(ctx, DROP_NO_HEADROOM);
	if (!handover_parse(ctx, h, &v6))
		return TO_SLOW_PATH;
	if (h->p.malformed)
		return drop(ctx, DROP_MALFORMED);
	f = handover_frontend(&h->p);
	if (!f || h->p.ttl <= 1)
		return drop(ctx, DROP_TTL_EXPIRED);
	if (f->flags & FRONTEND_GUARDED && guard_handed(ctx, &h->p, f, h->rest))
		return XDP_DROP;
	h->p.flags |= h->rest;
	verdict = v6 ? stateful_v6(ctx, &h->p, f) : stateful_v4(ctx, &h->p, f);
	return verdict == STATEFUL_ASK ? handover_send(ctx, h, v6) : verdict;
}

/* Entered from the balancer program with a packet whose flow is unknown here, and
 * from the slow_path program with one to our own address.
 */
static __always_inline int handover_frame(struct xdp_md *ctx)
{
	struct handover *h = handover_scratch_get();
	int verdict;
	bool v6;

	if (!h)
		return XDP_PASS;
	h->rest = 0;
	if (handover_parse(ctx, h, &v6))
		verdict = handover_out(ctx, h, v6);
	else
		verdict = v6 ? handover_in(ctx, h, true) : handover_in(ctx, h, false);
	h->on = verdict < 0 && verdict != TO_SYN ? h->rest : 0; /* syn does not take it */
	return verdict;
}

SEC("xdp.frags")
int handover(struct xdp_md *ctx)
{
	int verdict = handover_frame(ctx);

	if (verdict < 0) {
		trace_event(TRACE_ELSEWHERE, verdict == TO_SYN ? STEP_SYN : STEP_SLOW_PATH, 0);
		bpf_tail_call(ctx, &steps, verdict == TO_SYN ? STEP_SYN : STEP_SLOW_PATH);
		verdict = drop(ctx,
			       verdict == TO_SLOW_PATH_TOO_BIG ? DROP_TOO_BIG : DROP_NO_FRONTEND);
	}
	if (watching)
		watch_after(ctx, verdict);
	return verdict;
}

#endif
