/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows through services, with two entries each: one for the client's packets and one
 * for the endpoint's replies. An entry has the new addresses and ports for packets
 * with its key. Reversed, these are the key of its other half.
 *
 * What is seen of one half is copied to the other at most once per FLOW_TICK, and an
 * evicted half is recreated. So a flow in use is complete.
 */
#ifndef FAIRLEAD_PROXY_FLOW_H
#define FAIRLEAD_PROXY_FLOW_H

#include "common.h"
#include "hash.h"
#include "proxy/count.h"
#include "skb/read.h"

#define FLOW_TICK_SHIFT 30 /* 1.07 s, from ns without a division */

/* How long a flow is retained after its last packet, in FLOW_TICKs. */
struct packet_flow_keep {
	__u32 established, half_closed, closed, opening, reset;
	__u32 datagrams, unanswered;
};

/* The timeouts of connection tracking as kube-proxy sets it: a day for TCP, and an
 * hour if one side has closed. The agent, which sweeps, reads them here.
 */
volatile const struct packet_flow_keep flow_keeps = {
	.established = 80466,
	.half_closed = 3352,
	.closed = 60,
	.opening = 60,
	.reset = 10,
	.datagrams = 168,
	.unanswered = 28,
};

enum packet_flow_kind {
	PACKET_FLOW_ANSWER = 1,	 /* the endpoint's half */
	PACKET_FLOW_MASKED = 2,	 /* the endpoint sees this node's address, not the client's */
	PACKET_FLOW_OWN = 4,	 /* the client is this node itself */
	PACKET_FLOW_BRIDGED = 8, /* endpoint and client are ports of one bridge */
	PACKET_FLOW_LOOPED = 16, /* endpoint and client are both this node itself */
	PACKET_FLOW_CUT = 32,	 /* of a fragment: it exceeds the path MTU */
} __attribute__((packed));

enum packet_flow_state {
	PACKET_FLOW_ANSWERED = 1,  /* the endpoint has sent a packet */
	PACKET_FLOW_CONFIRMED = 2, /* and the client has sent one after that */
	PACKET_FLOW_CLIENT_FIN = 4,
	PACKET_FLOW_TARGET_FIN = 8,
	PACKET_FLOW_RESET = 16,
	PACKET_FLOW_DOUBTED = 32, /* a SYN bypassed the service: the endpoint's reply decides */
} __attribute__((packed));

#define FLOW_CLOSED (PACKET_FLOW_CLIENT_FIN | PACKET_FLOW_TARGET_FIN)

/* Starts like a tuple. */
struct packet_flow {
	struct addr src; /* the packet's new addresses */
	struct addr dst;
	__be16 sport;
	__be16 dport;
	enum packet_flow_kind kind;
	__u8 from_inside; /* the client received an endpoint of service.inside */
	enum packet_flow_state state;
	__u8 opened; /* of that SYN: opening_digest */
	__u32 seen;  /* the last packet: CLOCK_MONOTONIC in FLOW_TICKs */
	__u32 check; /* flow_check() */
};

_Static_assert(offsetof(struct packet_flow, kind) == offsetof(struct tuple, proto),
	       "a flow is hashed as a tuple");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct tuple);
	__type(value, struct packet_flow);
	__uint(max_entries, 1);
} packet_flows SEC(".maps");

static __always_inline __u32 flow_clock(void)
{
	return bpf_ktime_get_coarse_ns() >> FLOW_TICK_SHIFT;
}

/* Its counterpart is packetPacketFlowKeep.of in dataplane/proxy/packet. */
static __always_inline __u32 flow_keep(const struct packet_flow *f, __u8 proto)
{
	if (proto == IPPROTO_UDP)
		return f->state & PACKET_FLOW_ANSWERED ? flow_keeps.datagrams
						       : flow_keeps.unanswered;
	if (f->state & PACKET_FLOW_RESET)
		return flow_keeps.reset;
	if ((f->state & FLOW_CLOSED) == FLOW_CLOSED)
		return flow_keeps.closed;
	if (f->state & FLOW_CLOSED)
		return flow_keeps.half_closed;
	return f->state & PACKET_FLOW_CONFIRMED ? flow_keeps.established : flow_keeps.opening;
}

static __always_inline bool flow_over(const struct packet_flow *f)
{
	return f->state & PACKET_FLOW_RESET || (f->state & FLOW_CLOSED) == FLOW_CLOSED;
}

/* A checksum over the key and the constant fields. The kernel reuses an element's
 * memory immediately, so an entry may change to another flow's while it is read: it
 * is copied before it is used.
 */
static __always_inline __u32 flow_check(const struct tuple *t, const struct packet_flow *f)
{
	barrier(); /* it was written as another type than it is read here */
	return flow_hash(t) + 3 * flow_hash((const struct tuple *)f);
}

/* A digest of the number by which two SYNs differ. */
static __always_inline __u8 opening_digest(__u32 number)
{
	number ^= number >> 16;
	return number ^ number >> 8;
}

/* Returns 0 or a negative error, of which kernels before 6.4 return only the lower
 * half.
 */
static __always_inline int enter_flow(const struct tuple *t, struct packet_flow *f, __u64 flags)
{
	f->check = flow_check(t, f);
	return (int)bpf_map_update_elem(&packet_flows, t, f, flags);
}

/* Copies the entry with exactly this key, and returns its location. */
static __noinline struct packet_flow *find_flow(const struct tuple *t, struct packet_flow *copy)
{
	struct packet_flow *f = bpf_map_lookup_elem(&packet_flows, t);

	if (!f)
		return NULL;
	*copy = *f; /* check and use only the copy */
	if (copy->check != flow_check(t, copy))
		return NULL; /* it has just been evicted */
	return flow_clock() - copy->seen < flow_keep(copy, t->proto) ? f : NULL;
}

/* Sets the key of an entry's other half. */
static __always_inline void other_half(struct tuple *other, const struct packet_flow *f, __u8 proto)
{
	other->src = f->dst;
	other->dst = f->src;
	other->sport = f->dport;
	other->dport = f->sport;
	other->proto = proto;
	__builtin_memset(other->zero, 0, sizeof(other->zero));
}

/* Sets the rewrite for packets of the other half: the original t. */
static __always_inline void turn_round(struct packet_flow *other, const struct packet_flow *f,
				       const struct tuple *t)
{
	*other = *f;
	other->src = t->dst;
	other->dst = t->src;
	other->sport = t->dport;
	other->dport = t->sport;
	other->kind = f->kind ^ PACKET_FLOW_ANSWER;
}

static __noinline int forget_flow(const struct tuple *t)
{
	struct packet_flow *f = bpf_map_lookup_elem(&packet_flows, t);
	struct tuple other;

	if (!f)
		return 0;
	other_half(&other, f, t->proto);
	bpf_map_delete_elem(&packet_flows, &other);
	return bpf_map_delete_elem(&packet_flows, t);
}

/* Copies the flow's state to the other half. */
static __noinline int update_other_half(const struct packet_flow *f, const struct tuple *t)
{
	struct packet_flow made, *held;
	struct tuple other;

	other_half(&other, f, t->proto);
	held = bpf_map_lookup_elem(&packet_flows, &other);
	if (held) {
		held->seen = f->seen;
		held->state = f->state | (held->state & ~PACKET_FLOW_RESET);
		return 0;
	}
	turn_round(&made, f, t);
	return enter_flow(&other, &made, BPF_NOEXIST);
}

/* A SYN through the service: a SYN-ACK is for it. t is the client's packet. */
static __noinline int undoubt_flow(const struct packet_flow *f, const struct tuple *t)
{
	struct packet_flow *held;
	struct tuple other;

	other_half(&other, f, t->proto);
	held = bpf_map_lookup_elem(&packet_flows, &other);
	if (held)
		held->state &= ~PACKET_FLOW_DOUBTED;
	return 0;
}

static __always_inline __u8 state_of(const struct packet_flow *f, __u8 flags)
{
	bool answer = f->kind & PACKET_FLOW_ANSWER;
	__u8 state = 0;

	if (flags & VIEW_RESET)
		state |= PACKET_FLOW_RESET;
	if (flags & VIEW_FIN)
		state |= answer ? PACKET_FLOW_TARGET_FIN : PACKET_FLOW_CLIENT_FIN;
	if (answer)
		state |= PACKET_FLOW_ANSWERED;
	else if (f->state & PACKET_FLOW_ANSWERED)
		state |= PACKET_FLOW_CONFIRMED;
	return state;
}

/* Records a packet, whose entry f has been copied. Writes only changes: a write takes
 * the cache line from other CPUs. Returns true if the flow has not been seen for a
 * while.
 *
 * A reset may be forged, because sequence numbers are not tracked here. It is valid
 * until another packet is sent: an end that did accept the reset answers that packet
 * with another.
 */
static __always_inline bool note_packet(struct packet_flow *f, struct packet_flow *copy,
					const struct view *v)
{
	__u8 state = (copy->state & ~PACKET_FLOW_RESET) | state_of(copy, v->flags);
	__u32 now = flow_clock();
	bool later = copy->seen != now;

	if (!later && state == copy->state)
		return false;
	copy->seen = now;
	copy->state = state;
	f->seen = now;
	f->state = state;
	update_other_half(copy, &v->t);
	return later;
}

#endif
