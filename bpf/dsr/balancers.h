/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The load balancers that may send encapsulated packets to this node, by the source
 * of the outer header. A node that forwards a packet keeps that source, so the next
 * node checks the same address.
 */
#ifndef FAIRLEAD_DSR_BALANCERS_H
#define FAIRLEAD_DSR_BALANCERS_H

#include "common.h"
#include "maps.h"
#include "skb/read.h"

struct known_balancer {
	__u64 left; /* as in struct local_vip: packets in flight are still accepted */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct addr);
	__type(value, struct known_balancer);
} balancers SEC(".maps");

/* Whether only packets from these are accepted. Set by the agent. */
volatile __u32 balancers_checked = 0;

static __always_inline bool from_balancer(const struct view *outer)
{
	return !balancers_checked || bpf_map_lookup_elem(&balancers, &outer->t.src);
}

#endif
