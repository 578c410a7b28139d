/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The balancer: an XDP program that takes what is addressed to a frontend and
 * sends it to one of its servers.
 *
 *   parse -> look up the frontend -> choose a server -> tunnel     -> leave
 *     |               | none                            direct_nat
 *     |               +-> an answer to fullnat?         fullnat
 *     |                           | no
 *     +---------------------------+-> to a VIP? -> dropped
 *                                         | no
 *                                         +-> the kernel's, untouched
 *
 * Fragments, IPv4 options, IPv6 extension headers and other protocols than TCP
 * and UDP are to no frontend. Untouched go, too: VLAN tags, and packets whose
 * TTL ends here (the kernel answers those as any router does).
 */
#include "addr.h"
#include "common.h"
#include "parse.h"

#include "balancer/choose.h"
#include "balancer/count.h"
#include "balancer/direct_nat.h"
#include "balancer/fullnat.h"
#include "balancer/leave.h"
#include "balancer/maps.h"
#include "balancer/tunnel.h"
#include "balancer/unserved.h"

static __always_inline struct frontend *frontend_lookup(const struct packet *p)
{
	struct frontend_key key __attribute__((aligned(8)));

	frontend_key_set(&key, &p->t.dst, p->t.dport, p->t.proto);
	return bpf_map_lookup_elem(&frontends, &key);
}

/* The methods have frames of their own, as have the rare steps: all the stack
 * there is, on any way through the program, is 512 bytes.
 */
static __always_inline int send(struct xdp_md *ctx, const struct packet *p,
				const struct frontend *f, struct choice *ch, bool v6)
{
	enum drop_reason why;

	switch (f->method) {
	case METHOD_NONE:
	case METHOD_NAT:
	case METHOD_DR:
		break; /* no packet has protocol 0 and ports */
	case METHOD_TUNNEL:
		return tunnel(ctx, p, ch, v6);
	case METHOD_DIRECT_NAT:
		return v6 ? direct_nat_v6(ctx, p, ch) : direct_nat_v4(ctx, p, ch);
	case METHOD_FULLNAT:
		if (!fullnat_ensure(p, ch, &why, v6))
			return drop(ctx, why);
		return v6 ? fullnat_v6(ctx, p, ch->flow) : fullnat_v4(ctx, p, ch->flow);
	}
	return XDP_PASS;
}

static __noinline void remember_new(const struct packet *p, const struct choice *ch, __u32 now)
{
	struct flow fl = {
		.server = ch->slot.first,
		.generation = ch->server->generation,
		.state = p->t.proto == IPPROTO_UDP ? FLOW_UDP : FLOW_OPENING,
	};

	fl.expires = now + flow_life(fl.state);
	bpf_map_update_elem(&flows, &p->t, &fl, BPF_ANY);
}

/* rr keeps in mind whom it chose; fullnat does so by itself. */
static __always_inline void remember(const struct frontend *f, const struct packet *p,
				     const struct choice *ch, __u32 now)
{
	if (f->method == METHOD_FULLNAT || !remembers(f))
		return;
	if (ch->flow)
		flow_touch(ch->flow, p, now, false);
	else
		remember_new(p, ch, now);
}

/* TCP: a SYN. UDP: an entry made in the flow table, where there is one. */
static __always_inline bool is_new_flow(const struct frontend *f, const struct packet *p,
					const struct choice *ch)
{
	if (p->t.proto == IPPROTO_TCP)
		return p->flags & TCP_OPENS;
	return !ch->flow && remembers(f);
}

static __always_inline int serve_frontend(struct xdp_md *ctx, const struct packet *p,
					  struct frontend *f, bool v6)
{
	__u32 now = remembers(f) ? flow_now() : 0;
	struct choice ch;
	bool new_flow;
	int verdict;

	if (p->malformed)
		return drop(ctx, DROP_MALFORMED);
	if (p->ttl <= 1)
		return XDP_PASS;
	if (!choose(&ch, f, p, now))
		return drop(ctx, DROP_NO_BACKEND);
	remember(f, p, &ch, now);
	new_flow = is_new_flow(f, p, &ch);
	verdict = send(ctx, p, f, &ch, v6);
	if (verdict != XDP_DROP)
		count(f->id, ch.slot.first, p->len, new_flow);
	return verdict;
}

static __always_inline int serve(struct xdp_md *ctx, struct cursor *c, bool v6)
{
	struct packet p __attribute__((aligned(8)));
	struct frontend *f;

	if (parse_packet(c, &p, v6)) {
		f = frontend_lookup(&p);
		if (f)
			return serve_frontend(ctx, &p, f, v6);
		if (is_own(&p.t.dst, v6))
			return fullnat_back(ctx, &p, v6);
	}
	return v6 ? unserved_v6(ctx) : unserved_v4(ctx);
}

/* One body for both families, compiled once for each. */
static __always_inline int serve_v4(struct xdp_md *ctx)
{
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	c.pos += sizeof(struct ethhdr);
	return serve(ctx, &c, false);
}

static __always_inline int serve_v6(struct xdp_md *ctx)
{
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	c.pos += sizeof(struct ethhdr);
	return serve(ctx, &c, true);
}

SEC("xdp.frags")
int balancer(struct xdp_md *ctx)
{
	struct ethhdr *eth;
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	eth = parse_eth(&c);
	if (!eth || eth->h_dest[0] & 1)
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return serve_v4(ctx);
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return serve_v6(ctx);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
