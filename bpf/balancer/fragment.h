/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragments. The first fragment has the ports. They are retained for the datagram's
 * other fragments, so that these go to the same backend. A later fragment that
 * arrives before its first goes to user space, which reinjects it when the first
 * arrives, or drops it.
 *
 * A first fragment without the complete transport header, or a later one that would
 * overwrite that header, is an attack (RFC 1858, RFC 3128).
 *
 * The ports of a first fragment that is rejected because no source port is free are
 * not retained: in a flood of them, that would replace what other flows need in the
 * CPU's caches. A few hashes are enough to reject the other fragments.
 */
#ifndef FAIRLEAD_BALANCER_FRAGMENT_H
#define FAIRLEAD_BALANCER_FRAGMENT_H

#include "flow.h"
#include "icmp.h"
#include "scratch.h"

/* How long a datagram's ports are retained. The 16-bit identification may wrap in
 * little more time.
 */
#define FRAGMENT_NS 2000000000ULL

struct fragment_key {
	struct addr src;
	struct addr dst;
	__u32 id;
	__u8 proto; /* 0 in IPv6, whose fragments may differ in it */
	__u8 zero[3];
};

struct fragment {
	__u64 seen; /* ns of the coarse clock */
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 flags; /* enum tcp_flags */
	__u8 lost;  /* user space waited for the first fragment in vain */
	__u8 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* The longest frame that user space can reinject: the limit of
 * BPF_F_TEST_XDP_LIVE_FRAMES, a page less the kernel's overhead (net/bpf/test_run.c).
 */
#define ORPHAN_MAX 3072

/* A fragment that arrived before its first, for user space. */
struct orphan {
	__u64 seen; /* ns of the coarse clock */
	struct fragment_key key;
	__u32 ifindex;
	__u32 len;
	__u8 frame[ORPHAN_MAX];
};

const struct orphan *unused_orphan __attribute__((unused)); /* for bpf2go */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} orphans SEC(".maps");

#ifdef TRACING
/* The datagram whose first fragment is needed. A lookup would mark the live map's
 * entry as used, so the agent copies it and runs the program again.
 */
struct fragment_key fragment_wanted SEC(".data.notes");
#endif

static __always_inline bool is_fragment(const struct spot *s)
{
	return s->offset || s->more;
}

/* Minimum transport header bytes in a first fragment. */
static __always_inline __u32 l4_least(__u8 proto)
{
	switch (proto) {
	case IPPROTO_TCP:
		return sizeof(struct tcphdr);
	case IPPROTO_UDP:
		return sizeof(struct udphdr);
	case IPPROTO_SCTP:
		return sizeof(struct sctphdr);
	}
	return ICMP_HEADER;
}

/* Reports lengths that no sender generates: not a multiple of eight before the last
 * fragment, or beyond the maximum datagram size.
 */
static __always_inline bool fragment_is_broken(const struct spot *s)
{
	__u32 bytes = s->end - s->l4;

	return s->offset + bytes > 0xffff ||
	       (s->more && (!bytes || s->offset + (bytes & 7) != s->offset));
}

static __always_inline void fragment_key_set(struct fragment_key *k, const struct rare *r)
{
	k->src = r->p.t.src;
	k->dst = r->p.t.dst;
	k->id = r->own.id;
	k->proto = r->v6 ? 0 : r->own.proto;
	__builtin_memset(k->zero, 0, sizeof(k->zero));
}

/* Returns where this CPU records that a datagram's first fragment was rejected. mark
 * receives its contents: a hash of the datagram, and the clock. NULL if there is no key.
 */
static __always_inline __u64 *fragment_rejected(struct rare *r, __u64 *mark)
{
	struct flow_secret *secret = flow_secret_get();
	struct tuple t = {
		.src = r->p.t.src,
		.dst = r->p.t.dst,
		.sport = r->own.id >> 16,
		.dport = r->own.id,
		.proto = r->v6 ? 0 : r->own.proto,
	};
	__u64 tag;

	if (!secret)
		return NULL;
	tag = r->v6 ? flow_tag(secret, &t, true) : flow_tag(secret, &t, false);
	*mark = tag << 32 | flow_now();
	return &r->rejected[(tag >> 32) % FRAGMENTS_REJECTED];
}

__noinline int fragment_reject(struct rare *r)
{
	__u64 mark, *at = r ? fragment_rejected(r, &mark) : NULL;

	if (at)
		*at = mark;
	return 0;
}

/* Reports whether the first fragment was rejected in this second. */
__noinline bool fragment_is_rejected(struct rare *r)
{
	__u64 mark, *at = r ? fragment_rejected(r, &mark) : NULL;

	return at && *at == mark;
}

__noinline int fragment_remember(const struct rare *r)
{
	if (!r)
		return -1;
	struct fragment f = {
		.seen = bpf_ktime_get_coarse_ns(),
		.sport = r->p.t.sport,
		.dport = r->p.t.dport,
		.proto = r->p.t.proto,
		.flags = r->p.flags & ~(PACKET_ADMITTED | PACKET_ASK | PACKET_LAST),
	};
	struct fragment_key key;

	fragment_key_set(&key, r);
	return bpf_map_update_elem(&fragments, &key, &f, BPF_ANY);
}

/* Passes a later fragment to user space. */
__noinline int fragment_hand_up(struct xdp_md *ctx, struct rare *r)
{
	if (!r)
		return XDP_ABORTED;
	__u32 len = within(r->frame, 4096);
	struct orphan *o;

	if (len != r->frame || len > ORPHAN_MAX)
		return drop(ctx, DROP_FRAGMENT_LOST);
	trace_event(TRACE_FRAGMENT, TRACE_FRAGMENT_WAITS, 0);
	if (tracing)
		return XDP_DROP;
	o = bpf_ringbuf_reserve(&orphans, sizeof(*o), 0);
	if (!o)
		return drop(ctx, DROP_FRAGMENT_LOST);
	o->seen = bpf_ktime_get_coarse_ns();
	o->ifindex = ctx->ingress_ifindex;
	o->len = len;
	fragment_key_set(&o->key, r);
	if (bpf_xdp_load_bytes(ctx, 0, o->frame, len)) {
		bpf_ringbuf_discard(o, 0);
		return drop(ctx, DROP_FRAGMENT_LOST);
	}
	bpf_ringbuf_submit(o, 0);
	return XDP_DROP; /* not lost yet, so not counted */
}

/* Looks up a later fragment's ports, as stored by its first. */
__noinline int fragment_recall(struct xdp_md *ctx, struct rare *r)
{
	if (!r)
		return XDP_ABORTED;
	struct fragment_key key;
	struct fragment *f;

	fragment_key_set(&key, r);
#ifdef TRACING
	fragment_wanted = key;
#endif
	f = bpf_map_lookup_elem(&fragments, &key);
	if (!f || bpf_ktime_get_coarse_ns() - f->seen > FRAGMENT_NS) {
		if (fragment_is_rejected(r))
			return drop(ctx, DROP_NO_PORT);
		return fragment_hand_up(ctx, r);
	}
	if (f->lost)
		return drop(ctx, DROP_FRAGMENT_LOST);
	if (r->own.offset < l4_least(f->proto))
		return drop(ctx, DROP_TINY_FRAGMENT);
	trace_event(TRACE_FRAGMENT, TRACE_FRAGMENT_KNOWN, 0);
	r->p.t.sport = f->sport;
	r->p.t.dport = f->dport;
	r->p.t.proto = f->proto;
	r->p.flags = f->flags;
	r->own.proto = f->proto;
	return RARE_GO_ON;
}

#endif
