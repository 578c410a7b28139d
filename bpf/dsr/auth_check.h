/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The authentication tag (auth.h) at a backend's node: verifies a packet's tag, and
 * makes the tag of a packet forwarded to the next backend in its list. Only packets
 * for our backends are checked.
 */
#ifndef FAIRLEAD_DSR_AUTH_CHECK_H
#define FAIRLEAD_DSR_AUTH_CHECK_H

#include "auth.h"
#include "common.h"
#include "option_list.h"
#include "maps.h"
#include "scratch.h"

/* Counts a packet without a valid tag and reports whether it is accepted. */
static __always_inline bool auth_forgives(enum server_counter accepted, enum server_counter dropped)
{
	bool forgives = auth_policy != AUTH_REQUIRE;

	count(forgives ? accepted : dropped);
	return forgives;
}

/* Sets the packet that a tag covers. whole: its ports count. */
static __always_inline void auth_packet(struct auth_scratch *a, const struct view *v, bool whole)
{
	a->inner = v->t;
	if (whole)
		return;
	a->inner.sport = 0;
	a->inner.dport = 0;
	a->inner.proto = 0;
}

/* Reads a list's endpoints, starting with one. */
static __always_inline long auth_load(struct __sk_buff *skb, struct auth_scratch *a,
				      const struct list *l, __u32 from)
{
	__u32 size = ENDPOINT_SIZE(l->v6);

	if (from >= l->n)
		return 0;
	return load_some(skb, l->at + from * size, a->list, (l->n - from) * size, AUTH_LIST_MAX);
}

/* Reports whether the packet set by auth_packet is accepted with this list. src and
 * dst are the outer header's.
 */
static __noinline bool auth_admits(struct __sk_buff *skb, const struct list *l,
				   const struct addr *src, const struct addr *dst,
				   enum auth_place place)
{
	struct auth_scratch *a = auth_scratch_get();
	struct scratch *s = scratch();
	__u64 tag;

	if (!s || !a)
		return false;
	s->proven = false;
	s->retag = false;
	if (!l->tagged)
		return auth_forgives(SERVER_COUNTER_ACCEPTED_NO_AUTH_TAG,
				     SERVER_COUNTER_DROPPED_NO_AUTH_TAG);
	if (!bpf_skb_load_bytes(skb, l->at + l->n * ENDPOINT_SIZE(l->v6), &tag, sizeof(tag)) &&
	    !auth_load(skb, a, l, place == AUTH_OWN ? 1 : 0) && !auth_cover(src, dst, place, l->n))
		s->proven = auth_is_right(tag);
	return s->proven || auth_forgives(SERVER_COUNTER_ACCEPTED_WRONG_AUTH_TAG,
					  SERVER_COUNTER_DROPPED_WRONG_AUTH_TAG);
}

/* Makes the tag of a packet forwarded to dst with the rest of the list from resume,
 * if its own tag was valid.
 */
static __noinline void auth_goes_on(struct __sk_buff *skb, const struct list *l, __u32 resume,
				    const struct addr *src, const struct addr *dst)
{
	struct auth_scratch *a = auth_scratch_get();
	struct scratch *s = scratch();
	enum auth_place place;
	__u32 n;

	if (!s || !a || !s->proven)
		return;
	place = s->place;
	n = l->n - resume + (place == AUTH_OWN ? 1 : 0);
	if (auth_load(skb, a, l, resume) || auth_cover(src, dst, place, n))
		return; /* the next node rejects it */
	s->tag = auth_tag(auth_keys_at, 0);
	s->retag = true;
}

#endif
