/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sends a packet to the picked backend with the frontend's forwarding mode and counts
 * it, for all modes that need no flow tracking. send_v4 and send_v6 return a verdict,
 * or TO_SLOW_PATH for an unmodified packet.
 *
 * Each mode is a global function: the verifier checks it once, separately, and it has
 * its own stack frame. The stack of any call chain is limited to 512 bytes.
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

/* All backends drain: only the slot's older owners are left. */
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

/* Makes the first endpoint of the chain a backend, and the rest its chain. */
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

static __always_inline struct older *older_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&older_owners, &zero);
}

/* Prepares the owners of a chain. Global, so that the verifier checks it once and not
 * per forwarding mode.
 */
__noinline bool older_prepare(__u32 chain)
{
	const struct chain *all = bpf_map_lookup_elem(&chains, &chain);
	struct older *o = older_get();

	if (!all || !all->n || !o)
		return false;
	older_split(o, all);
	o->cpu.hop.tick = 0;
	return true;
}

static __always_inline bool choose_older(struct choice *ch, __u32 chain)
{
	struct older *o = older_prepare(chain) ? older_get() : NULL;

	if (!o)
		return false;
	ch->server = &o->server;
	ch->cpu = &o->cpu;
	ch->hop = &o->cpu.hop;
	ch->chain = o->rest.n ? &o->rest : NULL;
	return true;
}

static __always_inline bool choice_for(struct choice *ch, const struct pick *k)
{
	if (k->id)
		return choice_of(ch, k);
	ch->hash = k->hash;
	return k->chain && choose_older(ch, k->chain);
}

static __always_inline int send_by(struct xdp_md *ctx, const struct packet *p,
				   const struct frontend *f, const struct pick *k,
				   enum method method, bool v6)
{
	struct choice ch;
	int verdict;

	if (!ctx || !p || !f || !k) /* for the verifier */
		return XDP_PASS;
	if (!choice_for(&ch, k))
		return drop(ctx, DROP_NO_BACKEND);
	if (method == METHOD_TUNNEL)
		verdict = tunnel(ctx, p, f->encapsulation == ENCAPSULATION_GUE, &ch, v6);
	else if (method == METHOD_DIRECT_NAT)
		verdict = direct_nat(ctx, p, f, &ch, v6);
	else
		verdict = dr(ctx, p, f, &ch, v6);
	if (sent(verdict))
		count(f->id, ch.cpu, p->len, k->new_flow);
	return verdict;
}

__noinline int tunnel_v4(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			 const struct pick *k)
{
	return send_by(ctx, p, f, k, METHOD_TUNNEL, false);
}

__noinline int tunnel_v6(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			 const struct pick *k)
{
	return send_by(ctx, p, f, k, METHOD_TUNNEL, true);
}

__noinline int direct_nat_v4(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			     const struct pick *k)
{
	return send_by(ctx, p, f, k, METHOD_DIRECT_NAT, false);
}

__noinline int direct_nat_v6(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			     const struct pick *k)
{
	return send_by(ctx, p, f, k, METHOD_DIRECT_NAT, true);
}

__noinline int dr_v4(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
		     const struct pick *k)
{
	return send_by(ctx, p, f, k, METHOD_DR, false);
}

__noinline int dr_v6(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
		     const struct pick *k)
{
	return send_by(ctx, p, f, k, METHOD_DR, true);
}

static __always_inline int send_v4(struct xdp_md *ctx, const struct packet *p,
				   const struct frontend *f, const struct pick *k)
{
	switch (f->method) {
	case METHOD_TUNNEL:
		return tunnel_v4(ctx, p, f, k);
	case METHOD_DIRECT_NAT:
		return direct_nat_v4(ctx, p, f, k);
	case METHOD_DR:
		return dr_v4(ctx, p, f, k);
	default: /* modes that rewrite both directions track flows */
		return drop(ctx, DROP_NO_BACKEND);
	}
}

static __always_inline int send_v6(struct xdp_md *ctx, const struct packet *p,
				   const struct frontend *f, const struct pick *k)
{
	switch (f->method) {
	case METHOD_TUNNEL:
		return tunnel_v6(ctx, p, f, k);
	case METHOD_DIRECT_NAT:
		return direct_nat_v6(ctx, p, f, k);
	case METHOD_DR:
		return dr_v6(ctx, p, f, k);
	default: /* modes that rewrite both directions track flows */
		return drop(ctx, DROP_NO_BACKEND);
	}
}

#endif
