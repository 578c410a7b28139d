/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sources that have proven that they receive packets sent to them. A validated source
 * may open a limited number of connections before it is validated again: guessing one
 * of 2^15 answers to a challenge gains an attacker no more than that.
 */
#ifndef FAIRLEAD_BALANCER_SYN_SOURCE_H
#define FAIRLEAD_BALANCER_SYN_SOURCE_H

#include "flow.h"
#include "syn_maps.h"

#define SYN_SOURCE_SYNS 64
#define SYN_SOURCE_LIFE FLOW_SECONDS(600)

static __always_inline struct syn_sources *syn_sources_of(const struct addr *a, __u32 *tag)
{
	struct flow_secret *s = flow_secret_get();
	__u32 set;
	__u64 h;

	if (!s)
		return NULL;
	h = flow_finish(hash_keyed_addr(&s->k[4], a, true) + s->k[11]);
	*tag = h | 1;
	set = h >> 32 & (SYN_SETS - 1);
	return writable(syn_source_copies, set, bpf_map_lookup_elem(&syn_sources, &set));
}

static __always_inline __s32 syn_source_left(const struct syn_source *s, __u32 now)
{
	return (__s16)(s->expires - now);
}

/* Reports whether a source is validated, and consumes one of its SYNs. Global, like
 * the next one, so that the verifier checks them once.
 */
__noinline bool syn_source_known(const struct addr *a, __u32 now)
{
	struct syn_sources *set;
	__u32 tag;

	if (!a)
		return false;
	set = syn_sources_of(a, &tag);
	if (!set)
		return false;
	for (int i = 0; i < SYN_WAYS; i++) {
		struct syn_source *s = &set->way[i];

		if (s->tag != tag || !s->syns || syn_source_left(s, now) <= 0)
			continue;
		s->syns--;
		return true;
	}
	return false;
}

__noinline int syn_source_remember(const struct addr *a, __u32 now)
{
	struct syn_sources *set;
	__u32 tag, at = 0;
	__s32 least = 0x7fffffff;

	if (!a)
		return 0;
	set = syn_sources_of(a, &tag);
	if (!set)
		return 0;
	for (__u32 i = 0; i < SYN_WAYS; i++) {
		struct syn_source *s = &set->way[i];
		__s32 left = s->tag && s->syns ? syn_source_left(s, now) : 0;

		if (s->tag == tag)
			left = -SYN_SOURCE_LIFE - 1;
		if (left < least) {
			least = left;
			at = i;
		}
	}
	at &= SYN_WAYS - 1;
	set->way[at].expires = now + SYN_SOURCE_LIFE;
	set->way[at].syns = SYN_SOURCE_SYNS;
	set->way[at].tag = tag;
	return 0;
}

#endif
