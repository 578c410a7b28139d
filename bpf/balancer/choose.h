/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which server gets the packet. With maglev and a method that keeps no state:
 * one slot of the ring and one server. Otherwise a remembered flow comes first.
 */
#ifndef FAIRLEAD_BALANCER_CHOOSE_H
#define FAIRLEAD_BALANCER_CHOOSE_H

#include "flow.h"
#include "hash.h"
#include "maps.h"

struct choice {
	struct ring_slot slot; /* the ids: first is the server's */
	struct server *server;
	struct server *second; /* where the flow may be known, or NULL */
	struct flow *flow;     /* as remembered, or NULL */
	__u32 hash;
};

static __always_inline bool opens(const struct packet *p)
{
	return p->t.proto == IPPROTO_UDP || p->flags & TCP_OPENS;
}

static __always_inline struct server *server_lookup(__u32 id)
{
	struct server *s = bpf_map_lookup_elem(&servers, &id);

	return s && s->used ? s : NULL;
}

/* fullnat and rr keep their flows in mind. */
static __always_inline bool remembers(const struct frontend *f)
{
	return f->method == METHOD_FULLNAT || f->scheduler == SCHEDULER_RR;
}

/* A flow that is over is no reason to choose its server again for a new one. */
static __always_inline bool flow_binds(const struct flow *fl, const struct packet *p, __u32 now)
{
	return !opens(p) || !(flow_expired(fl, now) || fl->state == FLOW_CLOSING);
}

static __always_inline bool choose_remembered(struct choice *ch, const struct packet *p, __u32 now)
{
	struct flow *fl = bpf_map_lookup_elem(&flows, &p->t);
	struct server *s;

	if (!fl || fl->back)
		return false;
	s = server_lookup(fl->server);
	if (!s || s->generation != fl->generation || !flow_binds(fl, p, now))
		return false;
	ch->flow = fl;
	ch->server = s;
	ch->slot.first = fl->server;
	return true;
}

static __always_inline __u32 choose_slot(struct frontend *f, __u32 hash)
{
	if (f->scheduler == SCHEDULER_RR)
		return __sync_fetch_and_add(&f->turn, 1) % f->slots;
	return hash_slot(hash, f->slots);
}

static __always_inline bool choose_from_ring(struct choice *ch, struct frontend *f)
{
	__u32 segment = f->segment, slot;
	struct ring_slot *s;
	void *ring;

	ring = bpf_map_lookup_elem(&rings, &segment);
	if (!ring || !f->slots)
		return false;
	slot = f->slot + choose_slot(f, ch->hash);
	s = bpf_map_lookup_elem(ring, &slot);
	if (!s)
		return false;
	ch->slot = *s;
	ch->server = ch->slot.first ? server_lookup(ch->slot.first) : NULL;
	return ch->server;
}

static __always_inline bool choose(struct choice *ch, struct frontend *f, const struct packet *p,
				   __u32 now)
{
	ch->flow = NULL;
	ch->second = NULL;
	ch->hash = flow_hash(&p->t);
	if (remembers(f) && choose_remembered(ch, p, now))
		return true;
	return choose_from_ring(ch, f);
}

#endif
