/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What became of packets. Those before PACKET_COUNTER_PASSED_FRAGMENT are work
 * done, the PASSED_ ones went on untouched for a reason, the DROPPED_ ones ended
 * here. New ones go before the number at the end.
 */
#ifndef FAIRLEAD_PROXY_COUNT_H
#define FAIRLEAD_PROXY_COUNT_H

#include <linux/pkt_cls.h>

#include "common.h"

enum packet_counter {
	PACKET_COUNTER_FORWARDED,	   /* to a target, by the kernel */
	PACKET_COUNTER_FORWARDED_STRAIGHT, /* by the program, as one of this node's */
	PACKET_COUNTER_ANSWERED,	   /* back to the client */
	PACKET_COUNTER_ANSWERED_STRAIGHT,
	PACKET_COUNTER_FRAGMENT, /* later ones; the first is counted as any packet */
	PACKET_COUNTER_ERROR,	 /* an ICMP error about a packet of a flow */
	PACKET_COUNTER_FLOW_MADE,
	PACKET_COUNTER_FLOW_MOVED,	/* of a target that is gone */
	PACKET_COUNTER_REFUSED,		/* no target: answered with a reset or an ICMP error */
	PACKET_COUNTER_RESET,		/* a segment of no connection that is known: likewise */
	PACKET_COUNTER_TOO_BIG,		/* answered with an ICMP error */
	PACKET_COUNTER_EXPIRED,		/* its hops are spent: likewise */
	PACKET_COUNTER_PASSED_FRAGMENT, /* a later one, of no packet that is known */
	PACKET_COUNTER_PASSED_STRAY,	/* as RESET, but to the node, or somebody else's */
	PACKET_COUNTER_PASSED_MALFORMED,
	PACKET_COUNTER_DROPPED_SOURCE_RANGE,  /* no client of this service */
	PACKET_COUNTER_DROPPED_NO_LOCAL,      /* a policy Local, and no target here */
	PACKET_COUNTER_DROPPED_NO_WAY,	      /* no route or no neighbour to the target or client */
	PACKET_COUNTER_DROPPED_NO_SOURCE,     /* the node has no address of the family */
	PACKET_COUNTER_DROPPED_NO_PORT,	      /* all ports toward this target are in use */
	PACKET_COUNTER_DROPPED_FLOWS_FULL,    /* the kernel took no further flow */
	PACKET_COUNTER_DROPPED_WRONG_FAMILY,  /* the target is of the other one */
	PACKET_COUNTER_DROPPED_SCTP_FRAGMENT, /* its checksum covers what is elsewhere */
	PACKET_COUNTER_DROPPED_NO_ANSWER,     /* to be refused, but nobody may be told */
	PACKET_COUNTER_DROPPED_REWRITE,	      /* the kernel refused a change */
	PACKET_COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, enum packet_counter);
	__type(value, __u64);
	__uint(max_entries, PACKET_COUNTERS);
} packet_counters SEC(".maps");

static __always_inline void count(enum packet_counter what)
{
	__u64 *n = bpf_map_lookup_elem(&packet_counters, &what);

	if (n)
		(*n)++;
}

static __always_inline int pass(enum packet_counter why)
{
	count(why);
	return TC_ACT_UNSPEC;
}

static __always_inline int drop(enum packet_counter why)
{
	count(why);
	return TC_ACT_SHOT;
}

#endif
