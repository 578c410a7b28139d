/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frontends with flow tracking:
 *
 *   flow table -> known: its backend -> the forwarding mode's send step
 *        | unknown
 *        +-> may another load balancer know it? -> handover.h
 *        | no
 *        +-> affinity -> scheduler -> an entry, for nat and fullnat also a return entry
 *
 * A flow becomes void as soon as its backend is removed from the frontend.
 */
#ifndef FAIRLEAD_BALANCER_STATEFUL_H
#define FAIRLEAD_BALANCER_STATEFUL_H

#include "affinity.h"
#include "choose.h"
#include "count.h"
#include "flow_life.h"
#include "flow_open.h"
#include "flow_recent.h"
#include "nat.h"
#include "schedule.h"
#include "send.h"

/* Not verdicts, like TO_SLOW_PATH: query another load balancer for the flow; pass the
 * packet to the syn program.
 */
#define STATEFUL_ASK (-1000)
#define TO_SYN (-1002)

static __always_inline bool stateful_asks(const struct packet *p)
{
	if (p->flags & TCP_OPENS || p->flags & PACKET_LAST)
		return false;
	return p->flags & PACKET_ASK || set.draining_peers;
}

/* A new connection on the ports of an ended one is another flow. */
static __always_inline bool stateful_binds(__u64 word, const struct packet *p, __u32 now)
{
	if (!flow_is_found(word, now))
		return false;
	return !(p->flags & TCP_OPENS) || !(FLOW_IS_OVER >> flow_state(word) & 1);
}

/* Input and result of opening a flow. */
struct opening {
	__u64 tag;
	__u64 word;   /* in: a void entry's word, or 0; out: the flow's */
	__u32 index;  /* out: of the flow */
	__u32 server; /* the one to keep, 0: none */
	__u32 now;
	__u32 seq, ack;	       /* in: of the packet, as in struct flow_numbers */
	bool payload;	       /* in: the packet has data */
	bool proxied;	       /* translated sequence numbers: syn_proxy.h */
	bool remembered;       /* out: there is an entry */
	bool claimed;	       /* out: not visible yet: stateful_open_nat */
	bool fresh;	       /* out: the flow was unknown */
	enum flow_state state; /* out: its previous state */
};

/* Returns why the forwarding mode cannot open a flow, or 0. */
static __always_inline int stateful_refuses(const struct packet *p, const struct frontend *f,
					    bool v6)
{
	if (f->method != METHOD_FULLNAT)
		return 0;
	if (addr_is_zero(v6 ? &set.own6 : &set.own4))
		return FAILED(DROP_NO_SOURCE);
	return is_martian(&p->t.src, v6) ? FAILED(DROP_MARTIAN_SOURCE) : 0;
}

/* Writes a flow's data. The lock of its set is held. */
static __always_inline void stateful_describe(__u32 index, const struct packet *p, bool proxied)
{
	struct flow_data *data = flow_data_at(index);

	if (!data) /* for the verifier */
		return;
	data->client = p->t.src;
	data->vip = p->t.dst;
	data->client_port = p->t.sport;
	data->vip_port = p->t.dport;
	data->nat_port = 0;
	data->egress = (__u32)(p->t.proto | (proxied ? FLOW_PROXIED : 0)) << 24;
	data->tick = (__u32)bpf_jiffies64() - 1;
}

static __always_inline struct flow_numbers *stateful_numbers(struct flow_data *data)
{
	return (struct flow_numbers *)data->macs;
}

/* Assigns the packet the flow that was claimed, or that another CPU has opened. */
static __always_inline void stateful_has(struct opening *o, const struct flow_claim *c, bool found)
{
	o->word = c->word;
	o->index = c->index;
	o->remembered = true;
	if (found) {
		o->fresh = false;
		o->state = flow_state(c->word);
	}
}

/* Opens a flow to o->server. Returns enum flow_claimed or FAILED. A separate
 * function, so that the verifier checks it once, and to save stack.
 */
__noinline int stateful_open(const struct packet *p, const struct frontend *f, struct opening *o)
{
	struct flow_claim c = {};
	struct server *server;
	int claimed;
	__u32 state;

	if (!p || !f || !o)
		return FAILED(DROP_NO_BACKEND);
	c.set = flow_set_of(o->tag, &c.index);
	server = server_lookup(o->server);
	if (!c.set || !server)
		return FAILED(DROP_NO_BACKEND);
	state = p->t.proto == IPPROTO_UDP ? FLOW_UDP_OPENING : FLOW_OPENING;
	c.tag = o->tag;
	c.now = o->now;
	c.was = o->word;
	c.word = flow_word(o->server, server->generation, state, o->now + flow_lives[state]);
	if (is_nat(f))
		c.word |= FLOW_NAT;
	claimed = flow_claim(&c);
	if (claimed != FLOW_CLAIMED && claimed != FLOW_FOUND)
		return claimed;
	stateful_has(o, &c, claimed == FLOW_FOUND);
	if (claimed == FLOW_FOUND)
		return claimed;
	o->claimed = is_nat(f);
	if (!o->claimed)
		flow_publish(c.set, c.index, c.tag);
	return claimed;
}

/* Releases a claimed flow. */
static __always_inline void stateful_drop(const struct opening *o)
{
	__u32 first;
	struct flow_set *set = flow_set_of(o->tag, &first);

	if (set)
		flow_drop(set, o->index);
}

/* Gives a claimed flow its return entry. Returns 0 or FAILED. Separate from
 * stateful_open to save stack.
 */
__noinline int stateful_open_nat(const struct packet *p, const struct frontend *f,
				 const struct opening *o)
{
	struct flow_set *set;
	struct server *server;
	__u32 first;

	if (!p || !f || !o)
		return FAILED(DROP_FLOW_BUSY);
	set = flow_set_of(o->tag, &first);
	if (!set)
		return FAILED(DROP_FLOW_BUSY);
	server = server_lookup(o->server);
	stateful_describe(o->index, p, o->proxied);
	if (!server ||
	    !nat_open(p, o->server, server, o->index, o->now, f->method == METHOD_FULLNAT)) {
		flow_drop(set, o->index);
		return FAILED(DROP_NO_PORT);
	}
	flow_publish(set, o->index, o->tag);
	return 0;
}

/* Writes the data that a flow with direct server return will need: everything when it
 * leaves the opening state, and what its FIN acknowledges. Returns false if another
 * CPU has its set locked; a later packet tries again.
 */
__noinline bool stateful_introduce(const struct packet *p, const struct opening *o, __u32 index,
				   bool opening)
{
	struct flow_data *data = flow_data_at(index);
	struct flow_set *set;
	__u32 first;
	bool lives;

	if (!p || !o || !data)
		return false;
	set = flow_set_of(o->tag, &first);
	if (!set || !flow_lock(set))
		return false;
	lives = flow_tag_of(flow_at(set, index)) == o->tag;
	if (lives && opening) {
		stateful_describe(index, p, false);
		stateful_numbers(data)->seq = o->seq;
	}
	if (lives)
		stateful_numbers(data)->ack = o->ack;
	flow_unlock(set);
	return lives;
}

/* Returns what a packet proves about its flow's end, with direct server return: enum
 * flow_evidence.
 */
static __always_inline __u32 stateful_evidence(const struct flow_ref *r, const struct packet *p,
					       const struct opening *o)
{
	struct flow_data *data = flow_data_at(r->index);
	__u32 evidence = o->payload ? FLOW_PAYLOAD : 0, sent, received;
	__u32 state = flow_state(r->word);

	if (!data || r->word & FLOW_NAT ||
	    FLOW_BIT(state) & (FLOW_OPENINGS | FLOW_BIT(FLOW_ANSWERED)))
		return evidence;
	sent = o->seq - stateful_numbers(data)->seq;
	received = o->ack - stateful_numbers(data)->ack;
	if (p->t.proto == IPPROTO_SCTP ? !sent
				       : sent < FLOW_SENT_MAX && received < FLOW_RECEIVED_MAX)
		evidence |= FLOW_PROVEN;
	if (state == FLOW_TIME_WAIT && received > 1 && received < 1u << 31)
		evidence |= FLOW_BEYOND;
	return evidence;
}

/* Records a client's packet of a known flow. */
static __always_inline void stateful_touch(struct flow_ref *r, const struct packet *p,
					   const struct opening *o, bool two_way)
{
	__u32 state = flow_state(r->word), evidence, next;
	bool opening = FLOW_OPENINGS >> state & 1;

	if (likely(flow_is_steady(r->word, p, two_way))) {
		flow_renew(r, o->now);
		return;
	}
	evidence = two_way ? (o->payload ? FLOW_PAYLOAD : 0) : stateful_evidence(r, p, o);
	next = flow_next(state, p, two_way, evidence);
	/* A flow from nat keeps its return entry, even after the forwarding mode
	 * changed.
	 */
	if (!two_way && !(r->word & FLOW_NAT) && next != state &&
	    (opening || next == FLOW_TIME_WAIT) && !stateful_introduce(p, o, r->index, opening))
		return;
	flow_touch(r, next, o->now);
}

/* Reports whether a packet's flow and its backend are live. */
static __always_inline bool stateful_lives(const struct flow_ref *r, const struct server **server,
					   const struct packet *p, __u32 now)
{
	if (!stateful_binds(r->word, p, now))
		return false;
	*server = flow_server_alive(r->word);
	return *server;
}

/* Reports whether a flow has the return entry that the current forwarding mode needs,
 * and returns our port.
 */
static __always_inline bool stateful_has_way(const struct flow_ref *r, const struct packet *p,
					     const struct frontend *f, __be16 *own_port, bool v6)
{
	struct flow_data *data;

	if (!(r->word & FLOW_NAT))
		return false;
	data = flow_data_at(r->index);
	return data &&
	       nat_is_flow(data, p, p->t.proto, f->method == METHOD_FULLNAT, own_port, v6) &&
	       flow_holds(r);
}

/* Reports whether a nat or fullnat flow has translated sequence numbers. */
static __always_inline bool stateful_is_proxied(const struct flow_ref *r, const struct packet *p,
						const struct frontend *f, bool v6)
{
	struct flow_data *data;
	__be16 own_port;

	if (p->t.proto != IPPROTO_TCP || !(r->word & FLOW_NAT))
		return false;
	data = flow_data_at(r->index);
	return data &&
	       nat_is_flow(data, p, IPPROTO_TCP | FLOW_PROXIED, f->method == METHOD_FULLNAT,
			   &own_port, v6) &&
	       flow_holds(r);
}

/* Reports whether a packet's flow is known, in r. If only its return entry is missing
 * because the forwarding mode changed, o receives its backend. o->proxied marks a
 * flow of the syn program.
 */
static __always_inline bool stateful_known(struct flow_ref *r, const struct packet *p,
					   const struct frontend *f, struct opening *o, bool v6)
{
	const struct server *server;
	__be16 own_port;

	if (!flow_find(r) || !stateful_lives(r, &server, p, o->now))
		return false;
	if (!is_nat(f) || stateful_has_way(r, p, f, &own_port, v6))
		return true;
	o->proxied = stateful_is_proxied(r, p, f, v6);
	if (!o->proxied)
		o->server = flow_server(r->word);
	return false;
}

/* Reports whether a packet only continues a flow whose word has a copy, and returns its
 * backend.
 */
static __always_inline bool stateful_has_copy(struct choice *ch, const struct recent *n,
					      const struct packet *p, const struct frontend *f,
					      __u32 now)
{
	__u64 word;

	if (!n->line || f->method != METHOD_TUNNEL || p->flags & TCP_FINISHES)
		return false;
	word = recent_word(n->line, n->tag);
	if (recent_is_due(word, now))
		return false;
	ch->server = flow_server_alive(word);
	return ch->server && choice_has_cpu(ch, flow_server(word));
}

/* Reports whether a packet only continues a flow, and returns its backend and for
 * fullnat our port. All others are for stateful.
 */
static __always_inline bool stateful_continues(struct choice *ch, __be16 *own_port,
					       const struct packet *p, const struct frontend *f,
					       const struct recent *n, bool v6)
{
	struct flow_ref r = {.tag = n->tag ? n->tag : flow_tuple_tag(&p->t, v6)};
	__u32 now = flow_now(), id;

	ch->hash = r.tag >> 32; /* only spreads over the paths to the backend */
	ch->chain = NULL;
	if (likely(stateful_has_copy(ch, n, p, f, now)))
		return true;
	if (unlikely(opens(p) || !r.tag || !flow_ref_init(&r, r.tag) || !flow_find(&r) ||
		     !stateful_lives(&r, &ch->server, p, now)))
		return false;
	id = flow_server(r.word);
	if (unlikely(!choice_has_cpu(ch, id) || !flow_is_steady(r.word, p, is_nat(f))))
		return false;
	if (is_nat(f)) {
		if (unlikely(!stateful_has_way(&r, p, f, own_port, v6)))
			return false;
	} else if (unlikely(f->method != METHOD_TUNNEL)) {
		return false;
	}
	flow_renew(&r, now);
	if (n->line && !is_nat(f))
		recent_put(n->line, &r, now);
	return true;
}

/* Finds a packet's flow. Returns false if it is unknown; o has the details. */
static __always_inline bool stateful_find(const struct packet *p, const struct frontend *f,
					  struct opening *o, bool v6)
{
	struct flow_ref r;
	bool known;

	if (!p || !f || !o) /* for the verifier */
		return false;
	o->tag = flow_tuple_tag(&p->t, v6);
	if (!o->tag || !flow_ref_init(&r, o->tag))
		return false;
	known = stateful_known(&r, p, f, o, v6);
	if (r.flow) {
		o->state = flow_state(r.word);
		if (known)
			stateful_touch(&r, p, o, is_nat(f));
		o->word = r.word;
		o->index = r.index;
		o->remembered = true;
	}
	trace_event(TRACE_FLOW, known ? TRACE_FLOW_KNOWN : TRACE_FLOW_UNKNOWN,
		    flow_note(o->word, o->state));
	return known;
}

__noinline bool stateful_find_v4(const struct packet *p, const struct frontend *f,
				 struct opening *o)
{
	return stateful_find(p, f, o, false);
}

__noinline bool stateful_find_v6(const struct packet *p, const struct frontend *f,
				 struct opening *o)
{
	return stateful_find(p, f, o, true);
}

/* Sends a packet with nat or fullnat. */
static __always_inline int stateful_nat(struct xdp_md *ctx, const struct packet *p,
					const struct frontend *f, const struct opening *o, bool v6)
{
	struct pick k = {.new_flow = 0};
	struct choice ch;
	__be16 own_port;
	int verdict;

	if (!ctx || !p || !f || !o) /* for the verifier */
		return XDP_PASS;
	k.id = flow_server(o->word);
	if (!nat_own_port(o->index, o->tag, &own_port))
		return drop(ctx, DROP_FLOW_BUSY);
	if (!choice_of(&ch, &k))
		return drop(ctx, DROP_NO_BACKEND);
	verdict = nat_send(ctx, p, &ch, own_port, v6);
	if (sent(verdict))
		count(f->id, ch.cpu, p->len, o->fresh);
	return verdict;
}

__noinline int stateful_nat_v4(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			       const struct opening *o)
{
	return stateful_nat(ctx, p, f, o, false);
}

__noinline int stateful_nat_v6(struct xdp_md *ctx, const struct packet *p, const struct frontend *f,
			       const struct opening *o)
{
	return stateful_nat(ctx, p, f, o, true);
}

/* Chooses the backend of a new flow. Returns 0 or FAILED. */
static __always_inline int stateful_choose(const struct packet *p, struct frontend *f,
					   struct opening *o, bool by_hash)
{
	int id = f->affinity ? affinity_find(p, f, o->now) : 0;

	if (id == 0)
		id = schedule(f, choose_hash(f, p), by_hash);
	o->server = id;
	return id < 0 ? id : 0;
}

/* Handles a flow that does not fit the table: modes that need no state use the hash. */
static __always_inline int stateful_unremembered(const struct packet *p, struct frontend *f,
						 struct opening *o)
{
	int failed;

	if (is_nat(f))
		return FAILED(DROP_FLOWS_FULL);
	failed = stateful_choose(p, f, o, true);
	o->remembered = false;
	o->word = o->server;
	return failed;
}

/* Gives an unknown flow a backend and, if needed, a return entry. Returns 0 or FAILED. */
static __always_inline int stateful_new(const struct packet *p, struct frontend *f,
					struct opening *o, bool v6)
{
	int result = stateful_refuses(p, f, v6);

	o->fresh = true;
	if (result == 0 && !o->server)
		result = stateful_choose(p, f, o, false);
	if (result < 0)
		return result;
	if (f->method == METHOD_FULLNAT && nat_gives_up(p, o->server))
		return FAILED(DROP_NO_PORT);
	result = stateful_open(p, f, o);
	if (unlikely(result == FLOW_BUSY))
		result = stateful_open(p, f, o);
	if (result == FLOW_BUSY)
		return FAILED(DROP_FLOW_BUSY);
	if (result == FLOW_FULL)
		result = stateful_unremembered(p, f, o);
	else if (result >= 0 && o->claimed)
		result = stateful_open_nat(p, f, o);
	if (result >= 0)
		trace_event(TRACE_FLOW_MADE, o->remembered, flow_server(o->word));
	return result;
}

/* Reads the numbers of a packet with an Ethernet header and an IP header without
 * options.
 */
static __always_inline void stateful_read_numbers(struct xdp_md *ctx, const struct packet *p,
						  struct opening *o, bool v6)
{
	const __u32 header = v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	void *l4 = (void *)(long)ctx->data + sizeof(struct ethhdr) + header;
	void *end = (void *)(long)ctx->data_end;
	struct sctphdr *sctp = l4;
	struct tcphdr *tcp = l4;

	if (p->t.proto == IPPROTO_TCP && (void *)(tcp + 1) <= end) {
		o->seq = bpf_ntohl(tcp->seq);
		o->ack = bpf_ntohl(tcp->ack_seq);
		o->payload = p->len > header + (((const __u8 *)tcp)[12] >> 4) * 4;
	} else if (p->t.proto == IPPROTO_SCTP && (void *)(sctp + 1) <= end) {
		o->seq = bpf_ntohl(sctp->tag);
		o->ack = o->seq;
	}
}

/* Reports whether a packet opens a connection, or may answer a challenge. */
static __always_inline bool syn_concerns(const struct packet *p)
{
	return p->flags & TCP_OPENS || (p->flags & TCP_RESETS && !(p->flags & TCP_CONTINUES));
}

/* Decides about a packet of no known flow to a frontend that may be under pressure:
 * TO_SYN, 0 to serve it normally, or STATEFUL_UNREMEMBERED to serve it without an
 * entry.
 */
#define STATEFUL_UNREMEMBERED 1

static __always_inline int stateful_syn(const struct packet *p, const struct frontend *f)
{
	bool guarded = f->flags & FRONTEND_SYN_GUARDED;
	bool handed = p->flags & (PACKET_ASK | PACKET_LAST);

	if (likely(!(f->flags & (FRONTEND_SYN_GUARDED | FRONTEND_SYN_CHECKED))) ||
	    p->t.proto != IPPROTO_TCP)
		return 0;
	if (is_nat(f)) {
		if (handed) /* the load balancer that sent it has checked it */
			return guarded ? STATEFUL_UNREMEMBERED : 0;
		return p->flags & PACKET_ADMITTED ? 0 : TO_SYN;
	}
	if (!guarded)
		return 0;
	if (syn_concerns(p) && !handed && !(p->flags & PACKET_ADMITTED))
		return TO_SYN;
	return p->flags & TCP_OPENS ? 0 : STATEFUL_UNREMEMBERED;
}

/* Gives an unknown flow a backend, with or without an entry. Returns 0, FAILED,
 * TO_SYN or STATEFUL_ASK. No FAILED value is below STATEFUL_ASK.
 */
static __always_inline int stateful_unknown(const struct packet *p, struct frontend *f,
					    struct opening *o, bool ask, bool v6)
{
	int syn = stateful_syn(p, f);

	if (o->proxied || syn == TO_SYN)
		return TO_SYN;
	if (ask && !o->server && stateful_asks(p))
		return STATEFUL_ASK;
	if (syn == STATEFUL_UNREMEMBERED)
		return is_nat(f) ? FAILED(DROP_SYN_COOKIE) : stateful_unremembered(p, f, o);
	return stateful_new(p, f, o, v6);
}

/* Serves a packet. Returns a verdict, TO_SLOW_PATH or STATEFUL_ASK. */
static __always_inline int stateful(struct xdp_md *ctx, const struct packet *p, struct frontend *f,
				    bool v6)
{
	struct opening o __attribute__((aligned(8))) = {.now = flow_now()};
	struct pick k = {};
	int failed;

	if (!p || !f) /* for the verifier */
		return XDP_PASS;
	stateful_read_numbers(ctx, p, &o, v6);
	if (unlikely(!(v6 ? stateful_find_v6(p, f, &o) : stateful_find_v4(p, f, &o)))) {
		failed = stateful_unknown(p, f, &o, true, v6);
		if (failed <= STATEFUL_ASK)
			return failed;
		if (failed < 0)
			return drop(ctx, FAILED_WHY(failed));
	}
	if (unlikely(f->affinity && o.remembered && (o.fresh || flow_state(o.word) != o.state)))
		affinity_note(p, f, o.word, o.index, o.now);
	if (is_nat(f))
		return v6 ? stateful_nat_v6(ctx, p, f, &o) : stateful_nat_v4(ctx, p, f, &o);
	k.id = flow_server(o.word);
	k.hash = o.tag >> 32; /* only spreads over the paths to the backend */
	k.new_flow = o.fresh;
	return v6 ? send_v6(ctx, p, f, &k) : send_v4(ctx, p, f, &k);
}

__noinline int stateful_v4(struct xdp_md *ctx, const struct packet *p, struct frontend *f)
{
	return stateful(ctx, p, f, false);
}

__noinline int stateful_v6(struct xdp_md *ctx, const struct packet *p, struct frontend *f)
{
	return stateful(ctx, p, f, true);
}

#endif
