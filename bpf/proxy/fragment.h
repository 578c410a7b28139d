/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rewrite of a packet's first fragment, for the later ones, which have no ports.
 * Later fragments that arrive first continue unmodified. If the node tracks
 * connections, its kernel reassembles a packet before it leaves, so fragments may be
 * seen at one place and not at the other.
 */
#ifndef FAIRLEAD_PROXY_FRAGMENT_H
#define FAIRLEAD_PROXY_FRAGMENT_H

#include "proxy/flow.h"
#include "proxy/scratch.h"

/* As long as a receiver waits for the rest (RFC 8200, 4.5), in FLOW_TICKs. */
#define FRAGMENT_KEEP 56

struct packet_fragment_key {
	struct addr src;
	struct addr dst;
	__u32 id;
	__u8 proto;
	__u8 leaving;
	__u8 zero[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct packet_fragment_key);
	__type(value, struct packet_flow); /* its ports are unused */
	__uint(max_entries, 8192);
} packet_fragments SEC(".maps");

static __always_inline void fragment_key(struct packet_fragment_key *k, const struct scratch *s)
{
	const struct view *v = &s->view;

	__builtin_memset(k, 0, sizeof(*k));
	k->src = v->t.src;
	k->dst = v->t.dst;
	k->id = v->id;
	k->proto = v->t.proto;
	k->leaving = s->place == PLACE_LEAVING;
}

static __noinline int remember_fragment(const struct scratch *s)
{
	struct packet_flow f = s->made;
	struct packet_fragment_key k;

	fragment_key(&k, s);
	f.seen = flow_clock();
	return bpf_map_update_elem(&packet_fragments, &k, &f, BPF_ANY);
}

/* Copies the first fragment's rewrite to s->made. */
static __noinline bool find_fragment(struct scratch *s)
{
	struct packet_fragment_key k;
	const struct packet_flow *f;

	fragment_key(&k, s);
	f = bpf_map_lookup_elem(&packet_fragments, &k);
	if (!f || flow_clock() - f->seen >= FRAGMENT_KEEP)
		return false;
	s->made = *f;
	return true;
}

#endif
