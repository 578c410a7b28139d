/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* State of a packet's first fragment, for the later ones, which have no ports. Later
 * fragments that arrive first use the rows without ports, or continue unmodified.
 */
#ifndef FAIRLEAD_DSR_FRAGMENTS_H
#define FAIRLEAD_DSR_FRAGMENTS_H

#include "common.h"
#include "flows.h"
#include "skb/read.h"

/* As long as a receiver waits for the rest (RFC 8200, 4.5), in FLOW_TICKs. */
#define FRAGMENT_KEEP 56

enum fragment_fate {
	FRAGMENT_SENT_ON = 1, /* to the next backend of its list */
	FRAGMENT_SHORTCUT,    /* to a pod's device */
	FRAGMENT_ANSWER,      /* from a backend: the VIP to restore is known */
};

struct fragment_key {
	struct addr src;
	struct addr dst;
	__u32 id;
	__u8 proto;
	__u8 zero[3];
};

struct fragment {
	struct addr vip;
	__u32 seen; /* in FLOW_TICKs */
	__u32 fate; /* enum fragment_fate */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
	__uint(max_entries, 8192);
} server_fragments SEC(".maps");

static __always_inline void fragment_key(struct fragment_key *k, const struct view *v)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->src = v->t.src;
	k->dst = v->t.dst;
	k->id = v->id;
	k->proto = v->t.proto;
}

/* vip is NULL if no VIP must be restored. */
__noinline int remember_fragment(const struct view *v, enum fragment_fate fate,
				 const struct addr *vip)
{
	struct fragment f = {.seen = flow_clock(), .fate = fate};
	struct fragment_key k;

	if (!v)
		return 0;
	fragment_key(&k, v);
	if (vip)
		f.vip = *vip;
	return bpf_map_update_elem(&server_fragments, &k, &f, BPF_ANY);
}

static __noinline struct fragment *find_fragment(const struct view *v)
{
	struct fragment_key k;
	struct fragment *f;

	fragment_key(&k, v);
	f = bpf_map_lookup_elem(&server_fragments, &k);
	return f && flow_clock() - f->seen < FRAGMENT_KEEP ? f : NULL;
}

static __always_inline bool fragment_had(const struct view *v, enum fragment_fate fate)
{
	struct fragment *f = find_fragment(v);

	return f && f->fate == fate;
}

#endif
