/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Chooses the backend for a packet without flow tracking: a hash, a slot of the
 * frontend's ring, and the backend that owns it. Other backends that may have the
 * flow travel with the packet (chain.h).
 */
#ifndef FAIRLEAD_BALANCER_CHOOSE_H
#define FAIRLEAD_BALANCER_CHOOSE_H

#include "copy.h"
#include "hash.h"
#include "maps.h"
#include "trace_event.h"

/* The choice as numbers, which can be passed to non-inlined functions. */
struct pick {
	__u32 id;    /* of the backend; 0: none but the chain */
	__u32 chain; /* index in chains, 0: none */
	__u32 hash;
	__u32 new_flow; /* count it as a new flow */
};

/* The same choice, resolved. */
struct choice {
	const struct server *server;
	struct server_cpu *cpu;
	struct next_hop *hop;	   /* the cached one, valid or not */
	const struct chain *chain; /* other backends that may have the flow, or NULL */
	__u32 hash;
};

/* Reports whether the packet begins a flow, which no other backend can have. */
static __always_inline bool opens(const struct packet *p)
{
	return p->flags & TCP_OPENS;
}

static __always_inline struct server *server_lookup(__u32 id)
{
	struct server *s = bpf_map_lookup_elem(&servers, &id);

	return s && s->used ? s : NULL;
}

static __always_inline __u32 choose_hash(const struct frontend *f, const struct packet *p)
{
	if (unlikely(f->flags & FRONTEND_CLIENT_HASH))
		return addr_hash(&p->t.src);
	if (unlikely(f->flags & FRONTEND_VIP_HASH))
		return addr_hash(&p->t.dst);
	return flow_hash(&p->t);
}

/* Returns the index of the entry of a narrow ring's slot. */
static __always_inline __u32 narrow_entry(const struct frontend *f, void *ring, __u32 slot)
{
	__u32 key = f->slot + slot / 8;
	const __u8 *eight = bpf_map_lookup_elem(ring, &key);

	if (!eight)
		return ~0u;
	return f->slot + (f->slots + 7) / 8 + eight[slot % 8];
}

/* Reads a slot of a frontend's ring with a single load, as it is written. Returns
 * an empty slot if the slot does not exist.
 */
static __always_inline struct ring_slot slot_at(const struct frontend *f, __u32 slot)
{
	__u32 segment = f->segment;
	union {
		__u64 whole;
		struct ring_slot slot;
	} s = {};
	const __u64 *there;
	void *ring;

	ring = bpf_map_lookup_elem(&rings, &segment);
	if (!ring)
		return s.slot;
	if (f->scheduler & SCHEDULER_NARROW)
		slot = narrow_entry(f, ring, slot);
	else
		slot += f->slot;
	there = bpf_map_lookup_elem(ring, &slot);
	if (there)
		s.whole = *(const volatile __u64 *)there;
	return s.slot;
}

static __always_inline void choose(struct pick *k, const struct frontend *f, const struct packet *p)
{
	struct ring_slot slot;

	k->hash = choose_hash(f, p);
	slot = slot_at(f, hash_slot(k->hash, f->slots));
	k->id = slot.first;
	k->chain = opens(p) ? 0 : slot.chain;
	k->new_flow = opens(p);
}

/* The same outside the fast path: its stack frame is free again when others need one. */
static __noinline __u32 choose_apart(struct pick *k, const struct frontend *f,
				     const struct packet *p)
{
	choose(k, f, p);
	return k->id;
}

#define trace_pick(f, k)                                                                           \
	do {                                                                                       \
		trace_event(TRACE_SLOT, (f)->slots,                                                \
			    hash_slot((k)->hash, (f)->slots) | (__u64)(k)->hash << 32);            \
		trace_event(TRACE_SERVER, (k)->id, (k)->chain | (__u64)(k)->new_flow << 32);       \
	} while (0)

COPIES(server_copies, struct server);
COPIES(chain_copies, struct chain);
COPIES(server_cpu_copies, struct server_cpu);

/* A traced packet always queries the kernel's routes, not the cache. */
static __always_inline struct server_cpu *server_cpu_at(__u32 id)
{
	struct server_cpu *live = bpf_map_lookup_elem(&server_cpu, &id);

#ifdef TRACING
	struct server_cpu *copy = bpf_map_lookup_elem(&server_cpu_copies, &id);

	if (copy || !live)
		return copy;
	copy = copy_make(&server_cpu_copies, id, live);
	if (copy)
		copy->hop.tick = 0;
	return copy;
#else
	return live;
#endif
}

/* Finds the CPU's state of a backend. Returns false if the backend does not exist. */
static __always_inline bool choice_has_cpu(struct choice *ch, __u32 id)
{
	ch->cpu = server_cpu_at(id);
	if (!ch->cpu)
		return false;
	ch->hop = &ch->cpu->hop;
	return true;
}

/* Resolves the pick. Returns false if the backend does not exist. */
static __always_inline bool choice_of(struct choice *ch, const struct pick *k)
{
	__u32 id = k->id, chain = k->chain;

	ch->hash = k->hash;
	ch->chain = NULL;
	ch->server = writable(server_copies, id, server_lookup(id));
	if (!ch->server || !choice_has_cpu(ch, id))
		return false;
	if (chain)
		ch->chain = writable(chain_copies, chain, bpf_map_lookup_elem(&chains, &chain));
	return true;
}

#endif
