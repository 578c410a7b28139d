/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ClientIP affinity: a client's new flows go to the same backend as its last ones,
 * until it has opened none for the frontend's timeout. A client is an entry of the
 * flow table with its own kind of tag. Until one of its flows is established the
 * entry is short-lived, so that forged addresses do not fill the table.
 */
#ifndef FAIRLEAD_BALANCER_AFFINITY_H
#define FAIRLEAD_BALANCER_AFFINITY_H

#include "choose.h"
#include "flow_open.h"

#define AFFINITY_OPENING FLOW_SECONDS(60)

static __always_inline bool affinity_ref(struct flow_ref *r, const struct addr *client,
					 const struct frontend *f)
{
	struct flow_secret *s = flow_secret_get();
	__u64 h;

	if (!s)
		return false;
	h = hash_keyed_addr(&s->k[0], client, true);
	h += s->k[10] * f->id + s->k[11];
	return flow_ref_init(r, flow_finish(h));
}

/* Returns the backend's id for a client's next flow, 0 for any. A backend that drains
 * or is at its connection limit accepts no new flows.
 */
__noinline __u32 affinity_find(const struct packet *p, const struct frontend *f, __u32 now)
{
	struct flow_ref r;
	struct server *s;

	if (!p || !f || !affinity_ref(&r, &p->t.src, f) || !flow_find(&r) ||
	    flow_expired(r.word, now))
		return 0;
	s = flow_server_alive(r.word);
	if (!s || s->drains ||
	    (s->max_conns && connections_of(flow_server(r.word), 1) >= s->max_conns))
		return 0;
	return flow_server(r.word);
}

/* Adds an entry for an unknown client, but never in place of its flow's entry. */
static __always_inline void affinity_open(const struct flow_ref *r, __u64 word, __u32 index,
					  __u32 now)
{
	struct flow_claim c = {.set = r->set,
			       .tag = r->tag,
			       .index = r->first,
			       .word = word,
			       .spare = index + 1,
			       .now = now};

	if (flow_claim(&c) == FLOW_CLAIMED)
		flow_publish(c.set, c.index, c.tag);
}

/* Records the backend of a client's flow, given the flow's word and index. If the
 * table has no room or another CPU is changing the entry, this flow sets no affinity.
 */
__noinline int affinity_note(const struct packet *p, const struct frontend *f, __u64 flow,
			     __u32 index, __u32 now)
{
	const __u32 proof = FLOW_BIT(FLOW_ESTABLISHED) | FLOW_BIT(FLOW_UDP);
	bool established = proof >> flow_state(flow) & 1, remembered;
	__u32 state = FLOW_CLIENT, life;
	struct flow_ref r;
	__u64 word;

	if (!p || !f || !affinity_ref(&r, &p->t.src, f))
		return 0;
	trace_event(TRACE_AFFINITY, 0, flow_server(flow));
	life = FLOW_SECONDS((__u64)f->affinity);
	remembered = flow_find(&r) && !flow_expired(r.word, now);
	if (remembered)
		established |= flow_state(r.word) == FLOW_CLIENT;
	if (!established) {
		state = FLOW_CLIENT_OPENING;
		life = life < AFFINITY_OPENING ? life : AFFINITY_OPENING;
	}
	word = (flow & 0x07ffffff) | (__u64)state << FLOW_STATE_SHIFT |
	       (__u64)(now + life) << FLOW_EXPIRES_SHIFT;
	if (remembered)
		__sync_val_compare_and_swap(&r.flow->word, r.word, word);
	else
		affinity_open(&r, word, index, now);
	return 0;
}

#endif
