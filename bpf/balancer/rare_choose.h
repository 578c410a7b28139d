/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The choice, as the fast path makes it, kept in r->who. */
#ifndef FAIRLEAD_BALANCER_RARE_CHOOSE_H
#define FAIRLEAD_BALANCER_RARE_CHOOSE_H

#include "choose.h"
#include "rare_option.h"
#include "scratch.h"

static __always_inline struct frontend *rare_frontend(const struct rare *r)
{
	struct frontend_key key __attribute__((aligned(8)));

	frontend_key_set(&key, &r->p.t.dst, r->p.t.dport, r->p.t.proto);
	return bpf_map_lookup_elem(&frontends, &key);
}

/* Where everyone drains, the newest of the older owners is the one. */
static __always_inline bool rare_choose_older(struct rare *r)
{
	const struct chain *c = rare_chain(r);

	if (!c)
		return false;
	if (c->v6) {
		__builtin_memcpy(&r->who.addr, c->bytes, 16);
		__builtin_memcpy(&r->who.port, c->bytes + 16, 2);
	} else {
		__be32 v4;

		__builtin_memcpy(&v4, c->bytes, 4);
		addr_from_v4(&r->who.addr, v4);
		__builtin_memcpy(&r->who.port, c->bytes + 4, 2);
	}
	r->who.skip = 1;
	return true;
}

static __always_inline bool rare_opens(const struct rare *r)
{
	return r->p.flags & TCP_OPENS;
}

__noinline int rare_choose(struct rare *r, struct frontend *f)
{
	if (!r || !f)
		return false;
	struct choice ch = {};
	struct server *s;

	__builtin_memset(&r->who, 0, sizeof(r->who));
	ch.hash = flow_hash(&r->p.t);
	if (!f || !choose_from_ring(&ch, f))
		return false;
	r->who.frontend = f->id;
	r->who.method = f->method;
	r->who.encapsulation = f->encapsulation;
	r->who.survival = f->survival;
	r->who.hash = ch.hash;
	if (!rare_opens(r))
		r->who.chain = ch.slot.chain;
	if (!ch.slot.first)
		return rare_choose_older(r);
	s = server_lookup(ch.slot.first);
	if (!s)
		return false;
	r->who.server = ch.slot.first;
	r->who.addr = s->addr;
	r->who.port = s->port;
	return true;
}

#endif
