/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ClientIP affinity: a client's new flows go where its last ones went, until it
 * has opened none for the frontend's time. A client is an entry of the flow
 * table under a tag of its own. Until one of its flows is established it stays
 * for a moment only, so that forged addresses do not fill the table.
 */
#ifndef FAIRLEAD_BALANCER_AFFINITY_H
#define FAIRLEAD_BALANCER_AFFINITY_H

#include "choose.h"
#include "flow.h"

#define AFFINITY_OPENING FLOW_SECONDS(60)

static __always_inline bool affinity_ref(struct flow_ref *r, const struct addr *client,
					 const struct frontend *f)
{
	struct flow_secret *s = flow_secret_get();
	__u64 h;

	if (!s)
		return false;
	h = flow_sum_addr(&s->k[0], client, true);
	h += s->k[10] * f->id + s->k[11];
	return flow_ref_init(r, flow_finish(h));
}

/* The server's id that a client's next flow is to go to, 0 for any. A server
 * that drains, or has as many connections as it may, takes no new ones.
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
	    (s->max_conns && connections_of(flow_server(r.word)) >= s->max_conns))
		return 0;
	return flow_server(r.word);
}

static __always_inline void affinity_describe(__u32 index, const struct packet *p)
{
	struct flow_data *data = flow_data_at(index);

	if (!data)
		return;
	data->client = p->t.src;
	data->vip = p->t.dst;
	data->client_port = 0;
	data->vip_port = p->t.dport;
	data->back = 0;
	data->egress = (__u32)p->t.proto << 24;
}

/* Notes where a client's flow went. Where the table has no place, or another
 * CPU is at it, there is no affinity this time.
 */
__noinline int affinity_note(const struct packet *p, const struct frontend *f, __u64 flow,
			     __u32 now, bool established)
{
	__u32 state = FLOW_CLIENT, life;
	struct flow_ref r;
	__u64 word;

	if (!p || !f || !affinity_ref(&r, &p->t.src, f))
		return 0;
	life = FLOW_SECONDS((__u64)f->affinity);
	if (flow_find(&r) && !flow_expired(r.word, now))
		established |= flow_state(r.word) == FLOW_CLIENT;
	if (!established) {
		state = FLOW_CLIENT_OPENING;
		life = life < AFFINITY_OPENING ? life : AFFINITY_OPENING;
	}
	word = (flow & 0x07ffffff) | (__u64)state << FLOW_STATE_SHIFT |
	       (__u64)(now + life) << FLOW_EXPIRES_SHIFT;
	if (r.flow) {
		__sync_val_compare_and_swap(&r.flow->word, r.word, word);
		return 0;
	}
	if (flow_claim(&r, now) != FLOW_CLAIMED)
		return 0;
	flow_fill(&r, word);
	affinity_describe(r.index, p);
	flow_publish(&r);
	return 0;
}

#endif
