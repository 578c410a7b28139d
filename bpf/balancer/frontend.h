/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds a packet's frontend: first a bit that rules out most packets, then an exact
 * port match, then the VIP's own entry with its port ranges.
 */
#ifndef FAIRLEAD_BALANCER_FRONTEND_H
#define FAIRLEAD_BALANCER_FRONTEND_H

#include "copy.h"
#include "hash.h"
#include "maps.h"
#include "trace_event.h"

/* Maximum number of port ranges searched per VIP. */
#define RANGES_MAX 1024

static __always_inline bool may_be_ours(const struct addr *dst)
{
	__u32 bit = addr_hash(dst) >> VIP_BITS_SHIFT;
	__u32 word = bit / 64;
	const __u64 *bits = bpf_map_lookup_elem(&vip_bits, &word);

	return bits && (*bits >> (bit % 64) & 1);
}

static __always_inline bool is_own(const struct addr *a, bool v6)
{
	return addr_equal(a, v6 ? &set.own6 : &set.own4);
}

#define trace_frontend(f)                                                                          \
	trace_event(TRACE_FRONTEND, (f)->id,                                                       \
		    (f)->flags | (__u64)(f)->method << 32 | (__u64)(f)->scheduler << 40)

#ifdef TRACING

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frontend);
} frontend_copy SEC(".maps");

/* The scheduler advances the frontend's turn. A packet has one frontend at a time,
 * so one copy is enough.
 */
static __always_inline struct frontend *frontend_writable(const struct frontend *live)
{
	__u32 zero = 0;

	if (!live || bpf_map_update_elem(&frontend_copy, &zero, live, BPF_ANY))
		return NULL;
	return bpf_map_lookup_elem(&frontend_copy, &zero);
}

#else
#define frontend_writable(live) (live)
#endif

static __always_inline struct frontend *frontend_lookup(const struct addr *vip, __be16 port,
							__u8 proto)
{
	struct frontend_key key __attribute__((aligned(8)));

	frontend_key_set(&key, vip, port, proto);
	return frontend_writable(bpf_map_lookup_elem(&frontends, &key));
}

struct range_search {
	__u32 range;
	__u32 found; /* index + 1 */
	__u16 port;  /* host order */
	__u8 proto;
};

static long range_try(__u32 i, void *arg)
{
	struct range_search *s = arg;
	__u32 key = s->range + i;
	const struct port_range *r = bpf_map_lookup_elem(&port_ranges, &key);

	if (!r || r->proto != s->proto || s->port < r->first || s->port > r->last)
		return 0;
	s->found = key + 1;
	return 1;
}

/* Finds the frontend of a packet without an exact port match: a port range, or the
 * whole address. Returns NULL if the address is not a VIP.
 */
static __noinline struct frontend *frontend_wide(const struct packet *p)
{
	struct frontend *whole = frontend_lookup(&p->t.dst, 0, 0);
	struct range_search s = {.port = bpf_ntohs(p->t.dport), .proto = p->t.proto};
	struct port_range *r;
	__u32 index;

	if (!whole || !whole->ranges)
		return whole;
	s.range = whole->range;
	bpf_loop(whole->ranges < RANGES_MAX ? whole->ranges : RANGES_MAX, range_try, &s, 0);
	if (!s.found)
		return whole;
	index = s.found - 1;
	r = bpf_map_lookup_elem(&port_ranges, &index);
	return r ? frontend_writable(&r->f) : whole;
}

#endif
