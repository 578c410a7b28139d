/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which server a new flow gets, where flows are remembered: as package schedule
 * in Go says. A server that has as many connections as it may is passed over.
 * CPUs that choose at once may each give a server its last free place.
 */
#ifndef FAIRLEAD_BALANCER_SCHEDULE_H
#define FAIRLEAD_BALANCER_SCHEDULE_H

#include "choose.h"
#include "flow.h"
#include "hash.h"
#include "maps.h"

/* How many slots are asked, one after the other, for a server with room. */
#define SCHEDULE_TRIES 128
/* How many members lc and wlc compare. */
#define SCHEDULE_MEMBERS 4096
/* How many connections that have ended weigh as much as one that goes on: as in
 * Linux, ip_vs_dest_conn_overhead.
 */
#define SCHEDULE_GOES_ON 256
/* Makes another hash of a hash, for p2c's second slot. */
#define SCHEDULE_SECOND_THROW 0x9e3779b1u

/* A reason for a drop as a function's result, and back. */
#define FAILED(reason) (-1 - (int)(reason))
#define FAILED_WHY(result) ((enum drop_reason)(-1 - (result)))

/* Zero, but the verifier does not know it. Before Linux 6.7 that follows a callback
 * of bpf_loop for one round only, and takes out the branches that this round cannot
 * take (ab5cfac139ab "bpf: verify callbacks as if they are called unknown number of
 * times"): what a round leaves to the next must not begin as a constant.
 */
static volatile __u32 schedule_zero;

/* A choice on its way. */
struct schedule {
	struct frontend *f;
	__u32 start;   /* the first slot to ask */
	bool turns;    /* each try takes a turn */
	bool weighted; /* loads are by weight */
	bool full;     /* a server was passed over */
	__u32 server;  /* the best so far, 0: none */
	__u32 weight;  /* its */
	__u64 load;    /* its connections, by whether they go on */
};

/* Whether a server can take one connection more; load gets what it has. */
static __always_inline bool schedule_has_room(struct schedule *s, __u32 id, __u64 *load)
{
	struct server *server = server_lookup(id);

	if (!server)
		return false;
	*load = connections_of(id, SCHEDULE_GOES_ON);
	if (!server->max_conns || connections_of(id, 1) < server->max_conns)
		return true;
	s->full = true;
	return false;
}

/* A slot, or one of those behind it, or that whose turn it is. */
static long schedule_try(__u32 i, void *arg)
{
	struct schedule *s = arg;
	__u32 slots = s->f->slots;
	struct ring_slot slot;
	__u64 load;

	if (!slots) /* for the verifier */
		return 1;
	i = s->turns ? __sync_fetch_and_add(&s->f->turn, 1) : s->start + i;
	slot = slot_at(s->f, i % slots);
	if (!slot.first || !schedule_has_room(s, slot.first, &load))
		return 0;
	s->server = slot.first;
	return 1;
}

static __always_inline void schedule_seek(struct schedule *s)
{
	__u32 slots = s->f->slots;

	bpf_loop(slots < SCHEDULE_TRIES ? slots : SCHEDULE_TRIES, schedule_try, s, 0);
}

/* Takes a slot's server if it has less load than the one so far. */
static __always_inline void schedule_compare(struct schedule *s, struct ring_slot slot)
{
	__u32 weight = s->weighted && slot.chain ? slot.chain : 1;
	__u64 load;

	if (!slot.first || !schedule_has_room(s, slot.first, &load))
		return;
	if (s->server && load * s->weight >= s->load * weight)
		return;
	s->server = slot.first;
	s->weight = weight;
	s->load = load;
}

static long schedule_member(__u32 i, void *arg)
{
	struct schedule *s = arg;

	schedule_compare(s, slot_at(s->f, i));
	return 0;
}

/* lc, wlc: of all members the least loaded, of equals the first. */
static __always_inline void schedule_least(struct schedule *s)
{
	__u32 slots = s->f->slots;

	bpf_loop(slots < SCHEDULE_MEMBERS ? slots : SCHEDULE_MEMBERS, schedule_member, s, 0);
}

/* p2c: the less loaded of two slots, for which the flow's hash is the dice. */
static __always_inline void schedule_two(struct schedule *s, __u32 hash)
{
	__u32 second = hash_slot(hash * SCHEDULE_SECOND_THROW, s->f->slots - 1);

	schedule_compare(s, slot_at(s->f, s->start));
	if (s->f->slots > 1)
		schedule_compare(s, slot_at(s->f, second + (second >= s->start)));
}

/* Gives a new flow its server's id, or the reason for a drop below zero. by_hash:
 * whatever the scheduler the slot of the hash, so that all packets of a flow for
 * which the table has no place have one server still.
 */
__noinline int schedule(struct frontend *f, __u32 hash, bool by_hash)
{
	struct schedule s = {.f = f};

	if (!f || !f->slots) /* what lies where its slots would is another frontend's */
		return FAILED(DROP_NO_BACKEND);
	s.server = schedule_zero;
	s.weight = schedule_zero;
	s.load = schedule_zero;
	s.start = hash_slot(hash, f->slots);
	switch (by_hash ? SCHEDULER_MAGLEV : f->scheduler) {
	case SCHEDULER_RR:
	case SCHEDULER_WRR:
		s.turns = true;
		trace_event(TRACE_TURN, 0, 0);
		break;
	case SCHEDULER_LC:
		schedule_least(&s);
		break;
	case SCHEDULER_WLC:
		s.weighted = true;
		schedule_least(&s);
		break;
	case SCHEDULER_P2C:
		s.weighted = true;
		schedule_two(&s, hash);
		break;
	default:
		break;
	}
	if (!s.server)
		schedule_seek(&s);
	if (s.server)
		return s.server;
	return s.full ? FAILED(DROP_FULL) : FAILED(DROP_NO_BACKEND);
}

#endif
