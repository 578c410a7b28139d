/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Outcomes of packets. Those before PACKET_COUNTER_PASSED_FRAGMENT count completed
 * work, PASSED_ packets continued unmodified for a reason, DROPPED_ packets were
 * dropped. Add new ones before the number at the end.
 */
#ifndef FAIRLEAD_PROXY_COUNT_H
#define FAIRLEAD_PROXY_COUNT_H

#include <linux/pkt_cls.h>

#include "common.h"

enum packet_counter {
	PACKET_COUNTER_FORWARDED,	   /* to an endpoint, by the kernel */
	PACKET_COUNTER_FORWARDED_STRAIGHT, /* by the program, as from this node */
	PACKET_COUNTER_ANSWERED,	   /* back to the client */
	PACKET_COUNTER_ANSWERED_STRAIGHT,
	PACKET_COUNTER_FRAGMENT, /* later ones; the first counts as a packet */
	PACKET_COUNTER_ERROR,	 /* an ICMP error about a flow's packet */
	PACKET_COUNTER_FLOW_MADE,
	PACKET_COUNTER_FLOW_MOVED,	/* its endpoint was removed */
	PACKET_COUNTER_REFUSED,		/* no endpoint: answered with a reset or an ICMP error */
	PACKET_COUNTER_RESET,		/* a segment of no known connection: same answer */
	PACKET_COUNTER_TOO_BIG,		/* answered with an ICMP error */
	PACKET_COUNTER_EXPIRED,		/* TTL expired: answered with an ICMP error */
	PACKET_COUNTER_PASSED_FRAGMENT, /* a later one, of no known packet */
	PACKET_COUNTER_PASSED_STRAY,	/* like RESET, but to the node or another owner */
	PACKET_COUNTER_PASSED_MALFORMED,
	PACKET_COUNTER_DROPPED_SOURCE_RANGE,  /* client outside the service's source ranges */
	PACKET_COUNTER_DROPPED_NO_LOCAL,      /* policy Local, and no endpoint here */
	PACKET_COUNTER_DROPPED_NO_WAY,	      /* no route or neighbor to the endpoint or client */
	PACKET_COUNTER_DROPPED_NO_SOURCE,     /* the node has no address of the family */
	PACKET_COUNTER_DROPPED_NO_PORT,	      /* all ports to this endpoint are in use */
	PACKET_COUNTER_DROPPED_FLOWS_FULL,    /* the kernel accepted no more flows */
	PACKET_COUNTER_DROPPED_WRONG_FAMILY,  /* the endpoint is of the other family */
	PACKET_COUNTER_DROPPED_SCTP_FRAGMENT, /* its checksum covers other fragments */
	PACKET_COUNTER_DROPPED_NO_ANSWER,     /* must be rejected, but no answer is possible */
	PACKET_COUNTER_DROPPED_REWRITE,	      /* the kernel rejected a change */
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
