/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sending a packet to the server that was chosen, by the frontend's method: any
 * case of those that need nothing remembered. Both answer a verdict, or TO_RARE
 * for a packet that is still as it came.
 */
#ifndef FAIRLEAD_BALANCER_SEND_H
#define FAIRLEAD_BALANCER_SEND_H

#include "direct_nat.h"
#include "dr.h"
#include "tunnel.h"

static __always_inline bool sent(int verdict)
{
	return verdict == XDP_TX || verdict == XDP_REDIRECT || verdict == XDP_PASS;
}

/* The methods have frames of their own: all the stack there is, on any way
 * through the program, is 512 bytes.
 */
static __noinline int tunnel_v4(struct xdp_md *ctx, const struct packet *p,
				const struct frontend *f, const struct choice *ch)
{
	return tunnel(ctx, p, f, ch, false);
}

static __noinline int tunnel_v6(struct xdp_md *ctx, const struct packet *p,
				const struct frontend *f, const struct choice *ch)
{
	return tunnel(ctx, p, f, ch, true);
}

static __noinline int direct_nat_v4(struct xdp_md *ctx, const struct packet *p,
				    const struct frontend *f, const struct choice *ch)
{
	return direct_nat(ctx, p, f, ch, false);
}

static __noinline int direct_nat_v6(struct xdp_md *ctx, const struct packet *p,
				    const struct frontend *f, const struct choice *ch)
{
	return direct_nat(ctx, p, f, ch, true);
}

static __noinline int dr_v4(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			    const struct choice *ch)
{
	return dr(ctx, p, f, ch, false);
}

static __noinline int dr_v6(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			    const struct choice *ch)
{
	return dr(ctx, p, f, ch, true);
}

static __always_inline int send_v4(struct xdp_md *ctx, const struct packet *p,
				   const struct frontend *f, const struct choice *ch)
{
	switch (f->method) {
	case METHOD_TUNNEL:
		return tunnel_v4(ctx, p, f, ch);
	case METHOD_DIRECT_NAT:
		return direct_nat_v4(ctx, p, f, ch);
	case METHOD_DR:
		return dr_v4(ctx, p, f, ch);
	default: /* those that rewrite both ways remember */
		return drop(ctx, DROP_NO_BACKEND);
	}
}

static __always_inline int send_v6(struct xdp_md *ctx, const struct packet *p,
				   const struct frontend *f, const struct choice *ch)
{
	switch (f->method) {
	case METHOD_TUNNEL:
		return tunnel_v6(ctx, p, f, ch);
	case METHOD_DIRECT_NAT:
		return direct_nat_v6(ctx, p, f, ch);
	case METHOD_DR:
		return dr_v6(ctx, p, f, ch);
	default:
		return drop(ctx, DROP_NO_BACKEND);
	}
}

/* Everyone drains: the slot's older owners are all there is. */
struct older {
	struct server server;
	struct server_cpu cpu;
	struct chain rest;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct older);
} older_owners SEC(".maps");

/* Makes the first endpoint of the chain a server, and the rest its chain. */
static __always_inline void older_split(struct older *o, const struct chain *all)
{
	const __u8 *bytes = all->bytes;

	o->rest.n = all->n - 1;
	o->rest.v6 = all->v6;
	if (all->v6) {
		addr_copy(&o->server.addr, bytes);
		o->server.port = *(const __be16 *)(bytes + sizeof(struct addr));
		__builtin_memcpy(o->rest.bytes, bytes + ENDPOINT6_SIZE,
				 CHAIN_BYTES - ENDPOINT6_SIZE);
		return;
	}
	addr_from_v4(&o->server.addr, *(const may_alias_u32 *)bytes);
	o->server.port = *(const __be16 *)(bytes + sizeof(__be32));
	o->rest.sum = csum_fold(csum_diff2(csum_diff4(all->sum, addr_to_v4(&o->server.addr), 0),
					   o->server.port, 0));
	__builtin_memcpy(o->rest.bytes, bytes + ENDPOINT4_SIZE, CHAIN_BYTES - ENDPOINT4_SIZE);
}

static __always_inline bool choose_older(struct choice *ch, __u32 chain)
{
	const struct chain *all = bpf_map_lookup_elem(&chains, &chain);
	__u32 zero = 0;
	struct older *o = bpf_map_lookup_elem(&older_owners, &zero);

	if (!all || !all->n || !o)
		return false;
	older_split(o, all);
	o->cpu.tick = 0;
	ch->server = &o->server;
	ch->cpu = &o->cpu;
	ch->chain = o->rest.n ? &o->rest : NULL;
	return true;
}

/* What the ring says for a packet that needs no flow. */
static __always_inline int send_chosen(struct xdp_md *ctx, const struct packet *p,
				       const struct frontend *f, bool v6)
{
	struct ring_slot slot;
	struct choice ch = {};
	int verdict;

	if (!choose(&ch, &slot, f, p) && !(slot.chain && choose_older(&ch, slot.chain)))
		return drop(ctx, DROP_NO_BACKEND);
	verdict = v6 ? send_v6(ctx, p, f, &ch) : send_v4(ctx, p, f, &ch);
	if (sent(verdict))
		count(f->id, ch.cpu, p->len, opens(p));
	return verdict;
}

#endif
