/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The methods and schedulers that remember flows. fullnat: the server sees our
 * own address and a port that stands for the client; its answers come back here.
 * Two entries in flows, one a direction.
 */
#ifndef FAIRLEAD_BALANCER_FULLNAT_H
#define FAIRLEAD_BALANCER_FULLNAT_H

#include "choose.h"
#include "flow.h"
#include "leave.h"
#include "rewrite.h"
#include "send.h"

/* How many ports are tried before a flow is refused. */
#define PORT_TRIES 32

/* Addresses that no client has, but that a router of ours would let pass once
 * they are replaced (RFC 1812, 5.3.7).
 */
static __always_inline bool is_martian(const struct addr *a, bool v6)
{
	if (v6) {
		__u8 first = bpf_ntohl(a->word[0]) >> 24;
		bool low = !a->word[0] && !a->word[1] && !a->word[2];

		return first == 0xff || (low && bpf_ntohl(a->word[3]) <= 1);
	}
	__u8 first = bpf_ntohl(a->word[3]) >> 24;

	return first == 0 || first == 127 || first >= 224;
}

/* The search for a port. */
struct port_search {
	struct tuple back; /* the answers' key; its dport is what is searched */
	struct flow fl;	   /* the answers' entry */
	__u32 start;
	__u32 now;
	__u16 first;
	__u16 count;
	bool found;
};

/* Whether a port whose entry is `there` can be had: the flow is over in both
 * directions.
 */
static __always_inline bool port_is_over(const struct port_search *s, const struct flow *there)
{
	struct flow *forth;
	struct tuple key;

	if (!flow_expired(there, s->now))
		return false;
	tuple_reverse(&key, &there->to);
	forth = bpf_map_lookup_elem(&flows, &key);
	if (!forth)
		return true;
	tuple_reverse(&key, &forth->to);
	if (!tuple_equal(&key, &s->back))
		return true; /* it has another port since */
	if (!flow_expired(forth, s->now))
		return false;
	tuple_reverse(&key, &there->to);
	bpf_map_delete_elem(&flows, &key);
	return true;
}

/* One try. The entry that is there may be this very flow's, from before its
 * other entry was evicted.
 */
static long port_try(__u32 i, void *arg)
{
	struct port_search *s = arg;
	struct flow *there;

	s->back.dport = bpf_htons(s->first + (s->start + i) % s->count);
	there = bpf_map_lookup_elem(&flows, &s->back);
	if (there) {
		if (!tuple_equal(&there->to, &s->fl.to) && !port_is_over(s, there))
			return 0;
		bpf_map_delete_elem(&flows, &s->back);
	}
	s->found = bpf_map_update_elem(&flows, &s->back, &s->fl, BPF_NOEXIST) == 0;
	return s->found;
}

/* Opens a flow: finds a port, writes both entries, the answers' first. */
static __noinline int fullnat_open_at(const struct packet *p, const struct choice *ch, __u32 id,
				      const struct addr *own)
{
	struct port_search s = {
		.back.src = ch->server->addr,
		.back.dst = *own,
		.back.sport = ch->server->port,
		.back.proto = p->t.proto,
		.fl.server = id,
		.fl.generation = ch->server->generation,
		.fl.state = p->t.proto == IPPROTO_UDP ? FLOW_UDP : FLOW_OPENING,
		.fl.back = 1,
		.first = set.port_first,
		.count = set.port_count,
		.now = flow_now(),
	};

	if (!s.count)
		return -1;
	s.start = hash_slot(ch->hash, s.count);
	s.fl.expires = s.now + flow_life(s.fl.state);
	tuple_reverse(&s.fl.to, &p->t);
	bpf_loop(s.count < PORT_TRIES ? s.count : PORT_TRIES, port_try, &s, 0);
	if (!s.found)
		return -1;
	s.fl.back = 0;
	tuple_reverse(&s.fl.to, &s.back);
	return bpf_map_update_elem(&flows, &p->t, &s.fl, BPF_ANY);
}

/* Sees that the packet has a flow with a port: one that rr remembered under
 * another method has none yet. False, with the reason, where it cannot be.
 */
static __always_inline bool fullnat_ensure(const struct packet *p, const struct choice *ch,
					   __u32 id, struct flow **flow, enum drop_reason *why,
					   bool v6)
{
	const struct addr *own;

	if (*flow && (*flow)->to.proto)
		return true;
	*why = DROP_NO_SOURCE;
	own = v6 ? &set.own6 : &set.own4;
	if (addr_is_zero(own))
		return false;
	*why = DROP_MARTIAN_SOURCE;
	if (is_martian(&p->t.src, v6))
		return false;
	*why = DROP_NO_PORT;
	if (fullnat_open_at(p, ch, id, own))
		return false;
	*flow = bpf_map_lookup_elem(&flows, &p->t);
	return *flow;
}

static __always_inline int fullnat_send(struct xdp_md *ctx, const struct packet *p, struct flow *fl,
					bool v6)
{
	struct departure d;
	enum way way;

	flow_touch(fl, p, flow_now(), true);
	d.to = fl->to;
	way = find_way(ctx, &d, p->len, v6);
	if (way_leads_nowhere(way))
		return drop_way(ctx, way);
	if (!rewrite(ctx, p, &d.to, v6))
		return drop(ctx, DROP_NO_ROOM);
	return leave(ctx, &d, way, v6);
}

/* From the client to the server, of a flow that has its port. */
static __noinline int fullnat_v4(struct xdp_md *ctx, const struct packet *p, struct flow *fl)
{
	return fullnat_send(ctx, p, fl, false);
}

static __noinline int fullnat_v6(struct xdp_md *ctx, const struct packet *p, struct flow *fl)
{
	return fullnat_send(ctx, p, fl, true);
}

/* From the server to the client: what comes to our own address and is an
 * answer. Anything else there is the kernel's.
 */
static __always_inline int fullnat_back(struct xdp_md *ctx, const struct packet *p, bool v6)
{
	struct server *s;
	struct flow *fl;

	if (!p) /* for the verifier */
		return XDP_PASS;
	fl = bpf_map_lookup_elem(&flows, &p->t);
	if (!fl || !fl->back)
		return XDP_PASS;
	s = server_lookup(fl->server);
	if (!s || s->generation != fl->generation)
		return XDP_PASS;
	if (p->malformed)
		return drop(ctx, DROP_MALFORMED);
	if (p->ttl <= 1)
		return drop(ctx, DROP_TTL_EXPIRED);
	return v6 ? fullnat_v6(ctx, p, fl) : fullnat_v4(ctx, p, fl);
}

__noinline int fullnat_back_v4(struct xdp_md *ctx, const struct packet *p)
{
	return fullnat_back(ctx, p, false);
}

__noinline int fullnat_back_v6(struct xdp_md *ctx, const struct packet *p)
{
	return fullnat_back(ctx, p, true);
}

/* A flow that is over is no reason to choose its server again for a new one. */
static __always_inline bool flow_binds(const struct flow *fl, const struct packet *p, __u32 now)
{
	if (p->t.proto != IPPROTO_UDP && !opens(p))
		return true;
	return !(flow_expired(fl, now) || fl->state == FLOW_CLOSING);
}

static __always_inline struct flow *flow_remembered(struct pick *k, const struct packet *p,
						    __u32 now)
{
	struct flow *fl = bpf_map_lookup_elem(&flows, &p->t);
	struct server *s;

	if (!fl || fl->back)
		return NULL;
	s = server_lookup(fl->server);
	if (!s || s->generation != fl->generation || !flow_binds(fl, p, now))
		return NULL;
	k->id = fl->server;
	return fl;
}

static __always_inline bool choose_new(struct pick *k, struct frontend *f)
{
	__u32 turn;

	if (!f->slots)
		return false;
	if (f->scheduler == SCHEDULER_RR)
		turn = __sync_fetch_and_add(&f->turn, 1) % f->slots;
	else
		turn = hash_slot(k->hash, f->slots);
	k->id = slot_at(f, turn).first;
	return k->id;
}

static __noinline void remember_new(const struct packet *p, const struct choice *ch, __u32 id,
				    __u32 now)
{
	struct flow fl = {
		.server = id,
		.generation = ch->server->generation,
		.state = p->t.proto == IPPROTO_UDP ? FLOW_UDP : FLOW_OPENING,
	};

	fl.expires = now + flow_life(fl.state);
	bpf_map_update_elem(&flows, &p->t, &fl, BPF_ANY);
}

static __always_inline int fullnat(struct xdp_md *ctx, const struct packet *p,
				   const struct frontend *f, const struct pick *k,
				   const struct choice *ch, struct flow *fl, bool v6)
{
	enum drop_reason why;
	int verdict;

	if (!fullnat_ensure(p, ch, k->id, &fl, &why, v6))
		return drop(ctx, why);
	verdict = v6 ? fullnat_v6(ctx, p, fl) : fullnat_v4(ctx, p, fl);
	if (sent(verdict))
		count(f->id, ch->cpu, p->len, k->new_flow);
	return verdict;
}

static __always_inline int remembered(struct xdp_md *ctx, const struct packet *p,
				      struct frontend *f, bool v6)
{
	__u32 now = flow_now();
	struct pick k = {};
	struct choice ch;
	struct flow *fl;

	if (!p || !f) /* for the verifier */
		return XDP_PASS;
	k.hash = choose_hash(f, p);
	fl = flow_remembered(&k, p, now);
	k.new_flow = p->t.proto == IPPROTO_UDP ? !fl : opens(p);
	if ((!fl && !choose_new(&k, f)) || !choice_of(&ch, &k))
		return drop(ctx, DROP_NO_BACKEND);
	if (f->method == METHOD_FULLNAT)
		return fullnat(ctx, p, f, &k, &ch, fl, v6);
	if (fl)
		flow_touch(fl, p, now, false);
	else
		remember_new(p, &ch, k.id, now);
	return v6 ? send_v6(ctx, p, f, &k) : send_v4(ctx, p, f, &k);
}

__noinline int remembered_v4(struct xdp_md *ctx, const struct packet *p, struct frontend *f)
{
	return remembered(ctx, p, f, false);
}

__noinline int remembered_v6(struct xdp_md *ctx, const struct packet *p, struct frontend *f)
{
	return remembered(ctx, p, f, true);
}

#endif
