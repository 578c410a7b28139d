/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory for processing one packet, beyond the stack's 512 bytes. One program at a
 * time runs on a CPU. Each call overwrites what the previous one left here.
 */
#ifndef FAIRLEAD_PROXY_SCRATCH_H
#define FAIRLEAD_PROXY_SCRATCH_H

#include "proxy/choose.h"
#include "proxy/flow.h"
#include "skb/error.h"
#include "skb/read.h"
#include "skb/fib_redirect.h"

/* The maximum that an ICMP error quotes of a packet: a multiple of four. */
#define QUOTE_BYTES 128

/* Where a packet is seen. */
enum place {
	PLACE_OUTSIDE, /* received from the network */
	PLACE_INSIDE,  /* received from a pod of this node */
	PLACE_LEAVING, /* sent to the network or a pod */
};

/* Answers that the program itself sends, instead of a verdict. */
enum answer {
	ANSWER_RESET = 0x100,
	ANSWER_UNREACHABLE,
	ANSWER_EXPIRED,
	ANSWER_TOO_BIG, /* for way.mtu */
};

struct scratch {
	struct view view;
	enum place place;
	__u32 l3; /* where the device's packets start: after an Ethernet header, or at 0 */
	__u32 result;
	struct embedded embedded;
	struct tuple key __attribute__((aligned(8)));
	struct service_key asked __attribute__((aligned(8)));
	struct service service __attribute__((aligned(8)));
	struct affinity_key client __attribute__((aligned(8)));
	struct affinity chosen __attribute__((aligned(8)));
	struct packet_flow made __attribute__((aligned(8)));
	struct packet_flow back __attribute__((aligned(8)));
	struct packet_flow held __attribute__((aligned(8)));
	struct way way __attribute__((aligned(8)));
	__u8 quote[QUOTE_BYTES] __attribute__((aligned(8)));
	__u8 head[64] __attribute__((aligned(8)));
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct scratch);
	__uint(max_entries, 1);
} packet_scratch SEC(".maps");

static __always_inline struct scratch *scratch(void)
{
	__u32 i = 0;

	return bpf_map_lookup_elem(&packet_scratch, &i);
}

#endif
