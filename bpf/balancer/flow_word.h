/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A flow's word: its backend, its state and its expiry. The state transitions are
 * in flow_life.h.
 */
#ifndef FAIRLEAD_BALANCER_FLOW_WORD_H
#define FAIRLEAD_BALANCER_FLOW_WORD_H

#include "common.h"

/* The low bits of the generation are enough: the agent clears the flows of a
 * removed backend long before the number wraps.
 */
#define FLOW_SERVER_BITS 20
#define FLOW_GENERATION_SHIFT 20
#define FLOW_GENERATION_MASK 0x7f
#define FLOW_NAT (1ULL << 27) /* it has an entry in flow_back */
#define FLOW_STATE_SHIFT 28
#define FLOW_EXPIRES_SHIFT 32

/* Timeouts are those of Linux IPVS,
 * net/netfilter/ipvs/ip_vs_proto_{tcp,udp,sctp}.c, where it has such a state. A
 * flood of forged packets cannot move a flow beyond the opening states: with nat
 * and fullnat that requires the backend's reply.
 */
enum flow_state {
	FLOW_FREE = 0,
	FLOW_OPENING = 1,	 /* TCP, SCTP: the client has started; 60 s */
	FLOW_ESTABLISHED = 2,	 /* 15 min */
	FLOW_FINISHING = 3,	 /* a FIN from the client, possibly forged; 2 min */
	FLOW_CLOSED = 4,	 /* a valid RST or ABORT; 10 s */
	FLOW_UDP_OPENING = 5,	 /* 5 min */
	FLOW_UDP = 6,		 /* 5 min */
	FLOW_CLIENT_OPENING = 7, /* not a flow, but a client's affinity: affinity.h */
	FLOW_CLIENT = 8,
	FLOW_ANSWERED = 9,	/* nat, fullnat: opening, the backend replied; 60 s */
	FLOW_CLIENT_RESET = 10, /* like FINISHING, by a RST or ABORT; 2 min */
	FLOW_SERVER_FIN = 11,	/* nat, fullnat: the backend has sent a FIN; 2 min */
	FLOW_TIME_WAIT = 12,	/* both sides have finished; 2 min */
	FLOW_LINGERING = 13,	/* an expired FINISHING or CLIENT_RESET */
} __attribute__((packed));

/* The table's clock ticks every 2^30 ns (1.07 s): no division. */
#define FLOW_TICK_SHIFT 30
#define FLOW_SECONDS(s) ((__u32)((s) * 1000000000ULL >> FLOW_TICK_SHIFT))

const volatile __u32 flow_lives[16] = {
	[FLOW_OPENING] = FLOW_SECONDS(60),	[FLOW_ESTABLISHED] = FLOW_SECONDS(900),
	[FLOW_FINISHING] = FLOW_SECONDS(120),	[FLOW_CLOSED] = FLOW_SECONDS(10),
	[FLOW_UDP_OPENING] = FLOW_SECONDS(300), [FLOW_UDP] = FLOW_SECONDS(300),
	[FLOW_ANSWERED] = FLOW_SECONDS(60),	[FLOW_CLIENT_RESET] = FLOW_SECONDS(120),
	[FLOW_SERVER_FIN] = FLOW_SECONDS(120),	[FLOW_TIME_WAIT] = FLOW_SECONDS(120),
};

/* A timeout is renewed only after this much of it has passed, which saves writes.
 */
#define FLOW_RENEW FLOW_SECONDS(5)

/* How long a flow with an unproven end is still found after it expires, unless its
 * entry is needed: as long as an established flow.
 */
#define FLOW_LINGERS (FLOW_SECONDS(900) - FLOW_SECONDS(120))

#define FLOW_BIT(state) (1u << (state))
#define FLOW_OPENINGS (FLOW_BIT(FLOW_OPENING) | FLOW_BIT(FLOW_UDP_OPENING))
/* States that most packets do not change. */
#define FLOW_STEADY (FLOW_BIT(FLOW_ESTABLISHED) | FLOW_BIT(FLOW_UDP))
/* States whose cause may be a forged packet. */
#define FLOW_UNPROVEN                                                                              \
	(FLOW_BIT(FLOW_FINISHING) | FLOW_BIT(FLOW_CLIENT_RESET) | FLOW_BIT(FLOW_LINGERING))
/* A new connection on the same ports is another flow. */
#define FLOW_IS_OVER (FLOW_BIT(FLOW_CLOSED) | FLOW_BIT(FLOW_TIME_WAIT))
/* Flows that count as connections of their backend: all unexpired flows except
 * those that seem to have ended.
 */
#define FLOW_GOES_ON                                                                               \
	(FLOW_BIT(FLOW_OPENING) | FLOW_BIT(FLOW_ANSWERED) | FLOW_BIT(FLOW_ESTABLISHED) |           \
	 FLOW_BIT(FLOW_UDP_OPENING) | FLOW_BIT(FLOW_UDP))
#define FLOW_HAS_ENDED                                                                             \
	(FLOW_BIT(FLOW_FINISHING) | FLOW_BIT(FLOW_CLIENT_RESET) | FLOW_BIT(FLOW_SERVER_FIN) |      \
	 FLOW_BIT(FLOW_TIME_WAIT) | FLOW_BIT(FLOW_CLOSED))

static __always_inline __u32 flow_server(__u64 word)
{
	return word & ((1u << FLOW_SERVER_BITS) - 1);
}

static __always_inline __u32 flow_state(__u64 word)
{
	return word >> FLOW_STATE_SHIFT & 15;
}

static __always_inline __u32 flow_expires(__u64 word)
{
	return word >> FLOW_EXPIRES_SHIFT;
}

static __always_inline bool flow_generation_is(__u64 word, __u32 generation)
{
	return ((word >> FLOW_GENERATION_SHIFT ^ generation) & FLOW_GENERATION_MASK) == 0;
}

static __always_inline __u64 flow_word(__u32 server, __u32 generation, __u32 state, __u32 expires)
{
	return server | (__u64)(generation & FLOW_GENERATION_MASK) << FLOW_GENERATION_SHIFT |
	       (__u64)state << FLOW_STATE_SHIFT | (__u64)expires << FLOW_EXPIRES_SHIFT;
}

/* The same flow with another state or expiry. */
static __always_inline __u64 flow_word_with(__u64 word, __u32 state, __u32 expires)
{
	return (word & ((1ULL << FLOW_STATE_SHIFT) - 1)) | (__u64)state << FLOW_STATE_SHIFT |
	       (__u64)expires << FLOW_EXPIRES_SHIFT;
}

static __always_inline bool flow_expired(__u64 word, __u32 now)
{
	return (__s32)(flow_expires(word) - now) <= 0;
}

/* Reports whether an expired flow is still found. */
static __always_inline bool flow_lingers(__u64 word, __u32 now)
{
	return FLOW_UNPROVEN >> flow_state(word) & 1 && now - flow_expires(word) < FLOW_LINGERS;
}

/* Reports whether packets match it. */
static __always_inline bool flow_is_found(__u64 word, __u32 now)
{
	return likely(!flow_expired(word, now)) || flow_lingers(word, now);
}

#endif
