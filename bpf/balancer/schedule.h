/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Chooses the backend of a new flow for frontends that track flows, like package
 * schedule in Go. A backend at its connection limit is skipped. CPUs that choose
 * concurrently may each use a backend's last free slot.
 */
#ifndef FAIRLEAD_BALANCER_SCHEDULE_H
#define FAIRLEAD_BALANCER_SCHEDULE_H

#include "choose.h"
#include "flow.h"
#include "hash.h"
#include "maps.h"

/* Slots tried in order to find a backend with capacity. */
#define SCHEDULE_TRIES 128
/* Number of members that lc and wlc compare. */
#define SCHEDULE_MEMBERS 4096
/* How many ended connections weigh as much as an active one: as in Linux,
 * ip_vs_dest_conn_overhead.
 */
#define SCHEDULE_GOES_ON 256
/* Derives another hash, for p2c's second slot. */
#define SCHEDULE_SECOND_THROW 0x9e3779b1u

/* Encodes a drop reason as a function result, and decodes it. */
#define FAILED(reason) (-1 - (int)(reason))
#define FAILED_WHY(result) ((enum drop_reason)(-1 - (result)))

/* Zero, but unknown to the verifier. Before Linux 6.7 it follows a bpf_loop callback
 * for one iteration only and removes branches that this iteration cannot take
 * (ab5cfac139ab "bpf: verify callbacks as if they are called unknown number of
 * times"). So state passed between iterations must not start as a constant.
 */
static volatile __u32 schedule_zero;

/* State of a choice. */
struct schedule {
	struct frontend *f;
	__u32 start;   /* the first slot to try */
	bool turns;    /* each attempt takes a turn */
	bool weighted; /* loads are weighted */
	bool full;     /* a backend was skipped */
	__u32 server;  /* the best so far, 0: none */
	__u32 weight;  /* of server */
	__u64 load;    /* of server: weighted sum of its connections */
};

/* Reports whether a backend can take one more connection. load receives its load. */
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

/* Reads a slot. A call per slot costs less than four copies of the code. */
static __noinline __u64 schedule_slot(const struct frontend *f, __u32 slot)
{
	struct ring_slot s = slot_at(f, slot);

	return s.first | (__u64)s.chain << 32;
}

/* Tries a slot: the i-th after start, or the next turn's. */
static long schedule_try(__u32 i, void *arg)
{
	struct schedule *s = arg;
	__u32 slots = s->f->slots;
	__u64 load;
	__u32 id;

	if (!slots) /* for the verifier */
		return 1;
	i = s->turns ? __sync_fetch_and_add(&s->f->turn, 1) : s->start + i;
	id = schedule_slot(s->f, i % slots);
	if (!id || !schedule_has_room(s, id, &load))
		return 0;
	s->server = id;
	return 1;
}

static __always_inline void schedule_seek(struct schedule *s)
{
	__u32 slots = s->f->slots;

	bpf_loop(slots < SCHEDULE_TRIES ? slots : SCHEDULE_TRIES, schedule_try, s, 0);
}

/* Takes a slot's backend if it has less load than the best so far. */
static __always_inline void schedule_compare(struct schedule *s, __u64 slot)
{
	__u32 id = slot, weight = s->weighted && slot >> 32 ? slot >> 32 : 1;
	__u64 load;

	if (!id || !schedule_has_room(s, id, &load))
		return;
	if (s->server && load * s->weight >= s->load * weight)
		return;
	s->server = id;
	s->weight = weight;
	s->load = load;
}

static long schedule_member(__u32 i, void *arg)
{
	struct schedule *s = arg;

	schedule_compare(s, schedule_slot(s->f, i));
	return 0;
}

/* lc, wlc: the least loaded of all members, the first among equals. */
static __always_inline void schedule_least(struct schedule *s)
{
	__u32 slots = s->f->slots;

	bpf_loop(slots < SCHEDULE_MEMBERS ? slots : SCHEDULE_MEMBERS, schedule_member, s, 0);
}

/* p2c: the less loaded of two slots, selected by the flow's hash. */
static __always_inline void schedule_two(struct schedule *s, __u32 hash)
{
	__u32 second = hash_slot(hash * SCHEDULE_SECOND_THROW, s->f->slots - 1);

	schedule_compare(s, schedule_slot(s->f, s->start));
	if (s->f->slots > 1)
		schedule_compare(s, schedule_slot(s->f, second + (second >= s->start)));
}

/* Returns a new flow's backend id, or a negative drop reason. by_hash: use the slot
 * of the hash regardless of the scheduler, so that all packets of a flow that does
 * not fit the table still reach one backend.
 */
__noinline int schedule(struct frontend *f, __u32 hash, bool by_hash)
{
	struct schedule s = {.f = f};

	if (!f || !f->slots) /* its slots would belong to another frontend */
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
