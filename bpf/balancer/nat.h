/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* nat and fullnat: replies return through the load balancer. nat changes only the
 * destination, and the load balancer is the backends' gateway. With fullnat the
 * backend sees our own address and a port that represents the client.
 *
 * A flow is one entry of the flow table. flow_back finds it for a reply: the hash of
 * the reply's tuple leads to the entry's index. No two flows have the same reply
 * tuple: fullnat tries ports until one is free.
 */
#ifndef FAIRLEAD_BALANCER_NAT_H
#define FAIRLEAD_BALANCER_NAT_H

#include "choose.h"
#include "flow_life.h"
#include "flow_open.h"
#include "hash.h"
#include "egress.h"
#include "rewrite.h"

/* Number of ports tried before a flow is rejected. Each port in use costs some cache
 * lines. A flood of flows to a backend without free ports would load so many that
 * other flows slow down. So each failure halves the attempts for that backend, down
 * to one, and each success doubles them. Once a single attempt has failed, only one of
 * NAT_RETRY flows tries until the kernel's next tick. The others are rejected before
 * they touch the tables.
 */
#define NAT_PORT_TRIES 64
#define NAT_HALVED_MAX 6
#define NAT_HALVED 64 /* a power of two: backends by the last bits of their id */
#define NAT_RETRY 16

/* Number of lines in flow_back, a power of two. */
const volatile __u32 flow_back_lines = 2;

/* Backend addresses of frontends with nat: one bit for each value of the last bits of
 * addr_hash. If it is clear, a packet is no reply.
 */
#define NAT_BITS_WORDS 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, NAT_BITS_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} nat_bits SEC(".maps");

static __always_inline bool may_be_nat_server(const struct addr *a)
{
	__u32 hash = addr_hash(a), word = hash >> 6 & (NAT_BITS_WORDS - 1);
	__u64 *bits = bpf_map_lookup_elem(&nat_bits, &word);

	return bits && *bits >> (hash & 63) & 1;
}

static __always_inline bool is_nat(const struct frontend *f)
{
	return f->method == METHOD_NAT || f->method == METHOD_FULLNAT;
}

/* Backends of a port range have no port. */
static __always_inline __be16 nat_server_port(const struct server *s, __be16 addressed)
{
	return s->port ? s->port : addressed;
}

/* Returns the word of the flow that owns a flow_back entry, or NULL if it no longer
 * does.
 */
static __always_inline __u64 *nat_place_word(__u64 was, __u32 place)
{
	__u32 index = (__u32)was - 1, set = index / FLOW_WAYS;
	struct flow_data *data = flow_data_at(index);
	struct flow_set *flow = flow_set_at(set);

	if (!data || !flow || *(volatile __u32 *)&data->back != place + 1)
		return NULL;
	return &flow->way[index % FLOW_WAYS].word;
}

/* Ends a flow whose entry is reassigned, unless it changes concurrently. */
static __always_inline bool nat_end(__u64 *at, __u64 word)
{
	if (__sync_val_compare_and_swap(at, word, word & FLOW_NAT) != word)
		return false;
	connections_add(flow_server(word), -flow_counts(word));
	return true;
}

/* Reports whether a flow_back entry belongs to a live flow with a live backend. If
 * not, another client's port may take it.
 */
__noinline bool nat_place_is_held(__u64 was, __u32 place, __u32 now)
{
	__u64 *at = nat_place_word(was, place), word;

	if (!at)
		return false;
	word = *(volatile __u64 *)at;
	if (!flow_is_found(word, now) || !flow_server_alive(word))
		return false;
	/* A lingering flow ends before another takes its entry. */
	return !flow_expired(word, now) || !nat_end(at, word);
}

/* Counts the live flows in a line with the same reply hash. Frees entries of others
 * with this hash, so that they do not hide the live ones.
 */
__noinline __u32 nat_same(__u32 line, __u32 check, __u32 now)
{
	struct flow_back *back = flow_back_at(line);
	__u32 same = 0;

	if (!back)
		return 0;
	for (__u32 i = 0; i < FLOW_BACK_WAYS; i++) {
		__u64 was = *(volatile __u64 *)&back->way[i];

		if (!was || was >> 32 != check)
			continue;
		if (nat_place_is_held(was, line * FLOW_BACK_WAYS + i, now))
			same++;
		else
			__sync_val_compare_and_swap(&back->way[i], was, 0);
	}
	return same;
}

/* Returns an available entry of a line: a free one, or one whose flow is over, or
 * FLOW_BACK_WAYS if all are in use.
 */
__noinline __u32 nat_free_place(__u32 line, __u32 now)
{
	struct flow_back *back = flow_back_at(line);

	if (!back)
		return FLOW_BACK_WAYS;
	for (__u32 i = 0; i < FLOW_BACK_WAYS; i++)
		if (!*(volatile __u64 *)&back->way[i])
			return i;
	for (__u32 i = 0; i < FLOW_BACK_WAYS; i++)
		if (!nat_place_is_held(back->way[i], line * FLOW_BACK_WAYS + i, now))
			return i;
	return FLOW_BACK_WAYS;
}

/* Evicts from a line full of live flows the one closest to its expiry, among those
 * that the flow table also evicts in a flood. Returns its entry, or FLOW_BACK_WAYS if
 * no flow may be evicted.
 */
__noinline __u32 nat_push_out(__u32 line, __u32 now)
{
	struct flow_back *back = flow_back_at(line);
	__u32 place = FLOW_BACK_WAYS, soonest = ~0u;
	__u64 *first = NULL, was = 0;

	if (!back)
		return FLOW_BACK_WAYS;
	for (__u32 i = 0; i < FLOW_BACK_WAYS; i++) {
		__u64 *at =
			nat_place_word(*(volatile __u64 *)&back->way[i], line * FLOW_BACK_WAYS + i);
		__u64 word = at ? *(volatile __u64 *)at : 0;

		if (!at || flow_yields[flow_state(word)] & FLOW_STRONG ||
		    flow_expires(word) - now >= soonest)
			continue;
		place = i;
		first = at;
		was = word;
		soonest = flow_expires(word) - now;
	}
	if (!first || !nat_end(first, was))
		return FLOW_BACK_WAYS;
	trace_event(TRACE_REPLACED, flow_state(was), flow_server(was));
	return place;
}

/* Takes an entry in a line for the flow with this index, unless another flow has the
 * same reply tuple. The flow refers to the entry before others can see it. Of two
 * CPUs with the same reply tuple at most one succeeds: each publishes its own entry
 * before it searches for others. push: evict a flow from a full line.
 */
__noinline bool nat_take_place(__u32 line, __u32 check, __u32 index, __u32 now, bool push)
{
	struct flow_back *back = flow_back_at(line);
	__u64 value = (__u64)check << 32 | (index + 1), was;
	struct flow_data *data = flow_data_at(index);
	__u32 free;

	if (!back || !data || nat_same(line, check, now) || nat_same(line ^ 1, check, now))
		return false;
	free = nat_free_place(line, now);
	if (free >= FLOW_BACK_WAYS && push)
		free = nat_push_out(line, now);
	if (free >= FLOW_BACK_WAYS)
		return false;
	was = *(volatile __u64 *)&back->way[free];
	data->back = line * FLOW_BACK_WAYS + free + 1;
	if (__sync_val_compare_and_swap(&back->way[free], was, value) != was)
		return false;
	if (nat_same(line, check, now) + nat_same(line ^ 1, check, now) == 1)
		return true;
	__sync_val_compare_and_swap(&back->way[free], value, 0);
	return false;
}

/* This CPU's working state, too large for the stack. */
struct nat_scratch {
	struct tuple answer; /* of the flow being opened; fullnat searches its dport */
	struct tuple to;     /* what a reply becomes */
	struct departure d;
	__u32 index; /* of the flow being opened */
	__u32 now;
	__u32 seed; /* of the ports to try */
	__u32 v6;
	__u64 failed[NAT_HALVED]; /* single attempts that failed: nat_attempt */
	__u8 halved[NAT_HALVED];  /* number of times the attempts are halved, by backend */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, sizeof(struct nat_scratch));
} nat_scratch SEC(".maps");

static __always_inline struct nat_scratch *nat_scratch_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&nat_scratch, &zero);
}

/* Takes an entry for the reply in its line or the neighboring one. push: evict a flow
 * if both are full.
 */
static __always_inline bool nat_take(const struct nat_scratch *s, bool push)
{
	struct flow_secret *secret = flow_secret_get();
	__u32 line;
	__u64 tag;

	if (!secret)
		return false;
	tag = s->v6 ? flow_tag(secret, &s->answer, true) : flow_tag(secret, &s->answer, false);
	line = (tag >> 32) * flow_back_lines >> 32;
	return nat_take_place(line, tag, s->index, s->now, false) ||
	       nat_take_place(line ^ 1, tag, s->index, s->now, false) ||
	       (push && (nat_take_place(line, tag, s->index, s->now, true) ||
			 nat_take_place(line ^ 1, tag, s->index, s->now, true)));
}

/* Returns the i-th port to try. With few ports, sequentially, so that all are tried.
 * With more ports, scattered (the finalizer of MurmurHash3), because neighbors of a
 * used port are more likely to be in use.
 */
static __always_inline __u32 nat_port_slot(__u32 seed, __u32 i, __u32 count)
{
	__u32 x = seed + i;

	if (count <= NAT_PORT_TRIES)
		return (hash_slot(seed, count) + i) % count;
	if (!i)
		return hash_slot(seed, count);
	x = (x ^ x >> 16) * 0x85ebca6b;
	x = (x ^ x >> 13) * 0xc2b2ae35;
	return hash_slot(x ^ x >> 16, count);
}

static long nat_try_port(__u32 i, void *found)
{
	struct nat_scratch *s = nat_scratch_get();
	__u32 count = set.port_count;
	struct flow_data *data;

	if (!s || !count)
		return 1;
	data = flow_data_at(s->index);
	if (!data)
		return 1;
	s->answer.dport = bpf_htons(set.port_first + nat_port_slot(s->seed, i, count));
	data->nat_port = s->answer.dport;
	*(__u32 *)found = nat_take(s, false);
	return *(__u32 *)found;
}

/* Identifies attempts of this tick to find a port to a backend. One for many ports or
 * protocols has other free ports for each.
 */
static __always_inline __u64 nat_attempt(__u32 id, __be16 port, __u8 proto)
{
	return bpf_jiffies64() << 44 | (__u64)proto << 36 | (__u64)port << FLOW_SERVER_BITS | id;
}

/* Returns where the last such attempt is recorded. */
static __always_inline __u64 *nat_failed(struct nat_scratch *s, __u32 id, __be16 port)
{
	return &s->failed[(id + bpf_ntohs(port)) % NAT_HALVED];
}

/* Reports whether an attempt is not worthwhile. Not inlined, to save stack. */
__noinline bool nat_gives_up(const struct packet *p, __u32 id)
{
	struct nat_scratch *s = nat_scratch_get();
	struct server *server = server_lookup(id);
	__be16 port;

	if (!p || !s || !server)
		return false;
	port = nat_server_port(server, p->t.dport);
	return *nat_failed(s, id, port) == nat_attempt(id, port, p->t.proto) &&
	       bpf_get_prandom_u32() % NAT_RETRY;
}

/* Finds a port for a fullnat flow, whose reply tuple in s lacks only the port. When
 * the attempts are reduced, they differ each time, so that a client's next SYN may
 * succeed.
 */
static __always_inline bool nat_search(struct nat_scratch *s, __u64 tag, __u32 server)
{
	__u8 *halved = &s->halved[server % NAT_HALVED];
	__u64 *failed = nat_failed(s, server, s->answer.sport);
	__u32 ports = set.port_count, tries = NAT_PORT_TRIES >> (*halved & 7), found = 0;

	s->seed = *halved ? bpf_get_prandom_u32() : tag >> 32;
	bpf_loop(ports < tries ? ports : tries, nat_try_port, &found, 0);
	if (tracing)
		return found;
	if (found && *halved) {
		(*halved)--;
		*failed = 0;
	} else if (!found && *halved < NAT_HALVED_MAX) {
		(*halved)++;
	} else if (!found) {
		*failed = nat_attempt(server, s->answer.sport, s->answer.proto);
	}
	return found;
}

/* Creates the return entry of the claimed flow at index, after all its other data is
 * written. full: fullnat.
 */
static __always_inline bool nat_open(const struct packet *p, __u32 id, const struct server *server,
				     __u32 index, __u32 now, bool full)
{
	struct flow_data *data = flow_data_at(index);
	struct flow_secret *secret = flow_secret_get();
	struct nat_scratch *s = nat_scratch_get();
	bool found;

	if (!data || !s || !secret)
		return false;
	s->v6 = !addr_is_v4(&p->t.dst);
	s->index = index;
	s->now = now;
	s->answer = p->t;
	s->answer.src = server->addr;
	s->answer.dst = p->t.src;
	s->answer.sport = nat_server_port(server, p->t.dport);
	s->answer.dport = p->t.sport;
	if (!full) {
		found = nat_take(s, true);
	} else {
		s->answer.dst = s->v6 ? set.own6 : set.own4;
		found = nat_search(s, flow_tag(secret, &p->t, s->v6), id);
	}
	if (!found)
		data->back = 0;
	return found;
}

/* Reports whether an entry is this packet's flow with the current forwarding mode,
 * and with fullnat returns our port to the backend. proto is the packet's, with
 * FLOW_PROXIED to look for such a flow.
 */
static __always_inline bool nat_is_flow(const struct flow_data *data, const struct packet *p,
					__u8 proto, bool full, __be16 *own_port, bool v6)
{
	__u32 differ = (data->client_port ^ p->t.sport) | (data->vip_port ^ p->t.dport) |
		       (data->egress >> 24 ^ proto);

	differ |= data->client.word[3] ^ p->t.src.word[3];
	differ |= data->vip.word[3] ^ p->t.dst.word[3];
	if (v6)
		differ |=
			addr_differ(&data->client, &p->t.src) | addr_differ(&data->vip, &p->t.dst);
	*own_port = *(volatile __be16 *)&data->nat_port;
	return !differ && !!*own_port == full;
}

/* Returns that port for the flow with this tag, whose entry was found before. Returns
 * false if the entry has been reassigned.
 */
static __always_inline bool nat_own_port(__u32 index, __u64 tag, __be16 *own_port)
{
	struct flow_data *data = flow_data_at(index);
	__u32 set = index / FLOW_WAYS;
	struct flow_ref r = {.tag = tag, .set = flow_set_at(set)};

	if (!data || !r.set)
		return false;
	*own_port = *(volatile __be16 *)&data->nat_port;
	r.flow = &r.set->way[index % FLOW_WAYS];
	return flow_holds(&r);
}

/* Forwards from the client to the backend. own_port is 0 for nat. */
static __always_inline int nat_send(struct xdp_md *ctx, const struct packet *p,
				    const struct choice *ch, __be16 own_port, bool v6)
{
	enum way way = way_to(ctx, ch);
	struct tuple to = p->t;

	if (way_leads_nowhere(way))
		return drop_way(ctx, way);
	if (unlikely(!way_fits(way, ch, p->len)))
		return TO_SLOW_PATH_TOO_BIG;
	to.dst = ch->server->addr;
	to.dport = nat_server_port(ch->server, p->t.dport);
	if (own_port) {
		to.src = v6 ? set.own6 : set.own4;
		to.sport = own_port;
	}
	if (!rewrite(ctx, p, &to, v6))
		return drop(ctx, DROP_NO_HEADROOM);
	return leave_to(ctx, ch, way, v6);
}

/* Queries the kernel for the next hop to the client and caches it for this clock
 * tick, as for backends.
 */
__noinline int nat_ask_back(struct xdp_md *ctx, __u32 index, __u32 len, bool v6)
{
	struct nat_scratch *s = nat_scratch_get();
	struct flow_data *data = flow_data_at(index);
	__u32 now = bpf_jiffies64();
	enum way way;

	if (!data || !s)
		return WAY_KERNEL;
	data->tick = now - 1;
	s->d.to = s->to;
	way = v6 ? find_way(ctx, &s->d, len, true) : find_way(ctx, &s->d, len, false);
	if (way != WAY_BACK && way != WAY_ACROSS)
		return way;
	if (s->d.fib.ifindex >> 24)
		return WAY_KERNEL;
	data->mtu = s->d.fib.mtu_result;
	data->egress = (data->egress & 0xff000000) | s->d.fib.ifindex;
	__builtin_memcpy(data->macs, s->d.fib.dmac, ETH_ALEN);
	__builtin_memcpy(data->macs + ETH_ALEN, s->d.fib.smac, ETH_ALEN);
	data->tick = now;
	return way;
}

static __always_inline enum way nat_way_back(struct xdp_md *ctx, const struct flow_data *data,
					     const struct tuple *to, __u32 index, __u32 len,
					     bool v6)
{
	struct nat_scratch *s;

	if (data->tick != (__u32)bpf_jiffies64() || len > data->mtu) {
		s = nat_scratch_get();
		if (!s)
			return WAY_KERNEL;
		s->to = *to;
		return nat_ask_back(ctx, index, len, v6);
	}
	return (data->egress & 0xffffff) == ctx->ingress_ifindex ? WAY_BACK : WAY_ACROSS;
}

/* Returns the index + 1 of the flow with this reply hash, 0 if none. */
static __always_inline __u32 nat_find_back(__u64 tag)
{
	__u32 line = (tag >> 32) * flow_back_lines >> 32;

	for (int pass = 0; pass < 2; pass++, line ^= 1) {
		struct flow_back *back = flow_back_at(line);

		if (!back)
			return 0;
#pragma unroll
		for (__u32 i = 0; i < FLOW_BACK_WAYS; i++) {
			__u64 way = *(volatile __u64 *)&back->way[i];

			if (way >> 32 == (__u32)tag)
				return way;
		}
	}
	return 0;
}

/* Reports whether a packet is a reply of this flow. */
static __always_inline bool nat_is_answer(const struct flow_ref *r, const struct flow_data *data,
					  const struct packet *p, __u8 proto, __u32 now, bool v6)
{
	struct server *s = server_lookup(flow_server(r->word));
	bool full = data->nat_port;
	__u32 differ;

	if (!s || !flow_generation_is(r->word, s->generation) || !flow_is_found(r->word, now) ||
	    !(r->word & FLOW_NAT))
		return false;
	differ = s->addr.word[3] ^ p->t.src.word[3];
	differ |= nat_server_port(s, data->vip_port) ^ p->t.sport;
	differ |= (full ? data->nat_port : data->client_port) ^ p->t.dport;
	differ |= data->egress >> 24 ^ proto;
	if (v6)
		differ |= addr_differ(&s->addr, &p->t.src);
	if (full)
		differ |= v6 ? addr_differ(&set.own6, &p->t.dst)
			     : set.own4.word[3] ^ p->t.dst.word[3];
	else
		differ |= v6 ? addr_differ(&data->client, &p->t.dst)
			     : data->client.word[3] ^ p->t.dst.word[3];
	return !differ;
}

/* Finds the flow of a reply. Reads the tag before and after the data. proto is as in
 * nat_is_flow.
 */
static __always_inline struct flow_data *nat_find_answer(struct flow_ref *r, const struct packet *p,
							 __u8 proto, __u32 now, bool v6)
{
	struct flow_secret *secret = flow_secret_get();
	__u32 place = secret ? nat_find_back(flow_tag(secret, &p->t, v6)) : 0;
	struct flow_data *data;
	__u32 set;

	if (!place)
		return NULL;
	r->index = place - 1;
	set = r->index / FLOW_WAYS;
	r->set = flow_set_at(set);
	data = flow_data_at(r->index);
	if (!r->set || !data)
		return NULL;
	r->flow = &r->set->way[r->index % FLOW_WAYS];
	r->tag = flow_tag_of(r->flow);
	if (!r->tag || !flow_read(r, (void *)r->flow + order_after(r->tag)))
		return NULL;
	return nat_is_answer(r, data + order_after(r->tag), p, proto, now, v6) ? data : NULL;
}

/* It is no flow's reply. */
#define NAT_NO_ANSWER (-1001)

/* Reports whether a packet read from the frame's first buffer is malformed. */
static __always_inline bool is_malformed(struct xdp_md *ctx, const struct packet *p)
{
	if (likely(p->malformed != PACKET_CUT))
		return p->malformed;
	return bpf_xdp_get_buff_len(ctx) - sizeof(struct ethhdr) < p->len;
}

/* Forwards from the backend to the client, or returns NAT_NO_ANSWER. */
static __always_inline int nat_back(struct xdp_md *ctx, const struct packet *p, bool v6)
{
	struct tuple to = p->t;
	__u32 now = flow_now();
	struct flow_data *data;
	struct flow_ref r;
	enum way way;

	data = nat_find_answer(&r, p, p->t.proto, now, v6);
	if (!data)
		return NAT_NO_ANSWER;
	to.src = data->vip;
	to.dst = data->client;
	to.sport = data->vip_port;
	to.dport = data->client_port;
	if (!flow_holds(&r))
		return NAT_NO_ANSWER;
	if (is_malformed(ctx, p))
		return drop(ctx, DROP_MALFORMED);
	if (p->ttl <= 1)
		return drop(ctx, DROP_TTL_EXPIRED);
	flow_touch_answer(&r, p, now);
	way = nat_way_back(ctx, data, &to, r.index, p->len, v6);
	if (way == WAY_TOO_BIG)
		return TO_SLOW_PATH_TOO_BIG;
	if (way_leads_nowhere(way))
		return drop_way(ctx, way);
	if (!rewrite(ctx, p, &to, v6))
		return drop(ctx, DROP_NO_HEADROOM);
	return leave_by(ctx, data->macs, data->egress & 0xffffff, way, v6);
}

#endif
