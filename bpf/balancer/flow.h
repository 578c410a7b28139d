/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow table: a set-associative cache in an array, so that a look-up costs
 * one line of it, aged or fresh. A set is two lines of four entries; a flow has
 * a home line, and lives in the other one where there is no room at home. What
 * a packet seldom needs stands in flow_data, a line an entry.
 *
 *   tag --high bits--> flows[set] --way--> tag, word
 *                                    \--> flow_data[set * 8 + way]
 *
 * The tag is a hash of the tuple under a secret key, so that nobody outside can
 * aim at a set. Who gives an entry to another flow has the set's lock
 * (flow_open.h) and makes the tag zero meanwhile: a reader looks at the tag
 * before and after it reads the rest (order.h). A word alone is changed by anybody,
 * with compare-and-swap: the agent makes those of flows that are over FLOW_FREE.
 */
#ifndef FAIRLEAD_BALANCER_FLOW_H
#define FAIRLEAD_BALANCER_FLOW_H

#include "choose.h"
#include "flow_word.h"
#include "maps.h"
#include "order.h"

#define FLOW_LINE 4
#define FLOW_WAYS (2 * FLOW_LINE)
#define FLOW_LOCKED 1ULL /* in the tag of a set's first entry: the set is */

struct flow {
	__u64 tag;  /* 0: none's */
	__u64 word; /* FLOW_SERVER and so on */
};

struct flow_set {
	struct flow way[FLOW_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_set);
} flows SEC(".maps");

/* How many sets there are: as many as flows has entries. */
const volatile __u32 flow_sets = 1;

/* The numbers of a connection by direct return: of TCP the sequence and
 * acknowledgement number of the client's first packet after its SYN (of its FIN the
 * latter, once one was seen that proved itself), of SCTP the verification tag in
 * both.
 */
struct flow_numbers {
	__u32 seq; /* host order */
	__u32 ack;
	__u32 zero;
};

/* What the two directions of a flow are, and by nat and fullnat the way back to its
 * client as the kernel's tables said in this tick of its clock. A flow without
 * FLOW_NAT has it once it is no longer opening: a flood need not fetch these lines.
 */
struct flow_data {
	struct addr client;
	struct addr vip; /* as addressed: also one of a range */
	__be16 client_port;
	__be16 vip_port;
	__be16 nat_port; /* fullnat: ours toward the server */
	__u16 mtu;
	__u32 back;   /* its place in flow_back, and one; 0: none */
	__u32 egress; /* interface; in the highest byte the protocol */
	__u32 tick;
	__u8 macs[12] __attribute__((aligned(4))); /* by direct return struct flow_numbers */
};

/* In the protocol of a flow whose sequence numbers are translated (syn_proxy.h): to all
 * that looks for the protocol itself it is another flow.
 */
#define FLOW_PROXIED 0x80

_Static_assert(sizeof(struct flow_data) == 64, "one line");
_Static_assert(sizeof(struct flow_numbers) == 12, "in the place of MAC addresses");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_data);
} flow_data SEC(".maps");

/* A place of an answer's flow: half of the answer's hash, and the flow's index
 * and one.
 */
#define FLOW_BACK_WAYS 8
struct flow_back {
	__u64 way[FLOW_BACK_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_back);
} flow_back SEC(".maps");

/* The connections that each server has, by its id: those that go on in the upper
 * half of the number, those that have ended in the lower one. The agent counts
 * them anew once a second, for what is lost between CPUs.
 */
#define CONNECTION_GOES_ON (1LL << 32)
#define CONNECTION_HAS_ENDED 1LL
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} connections SEC(".maps");

/* The key of the tags, made once by the agent. */
#define FLOW_SECRETS 12
struct flow_secret {
	__u64 k[FLOW_SECRETS];
};

_Static_assert(FLOW_SECRETS >= HASH_KEYS, "hash_keyed needs so many");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_secret);
} flow_secret SEC(".maps");

/* The clock as it was last read, and below it in which tick of the kernel's: it
 * does not move within one. One word, so that no CPU sees half of it.
 */
__u64 flow_clock SEC(".data.clock");

static __always_inline __u32 flow_now(void)
{
	__u64 clock = *(volatile __u64 *)&flow_clock;
	__u32 tick = bpf_jiffies64();

	if (unlikely((__u32)clock != tick)) {
		clock = bpf_ktime_get_coarse_ns() >> FLOW_TICK_SHIFT << 32 | tick;
		*(volatile __u64 *)&flow_clock = clock;
	}
	return clock >> 32;
}

/* Lets every bit of a sum reach every other. */
static __always_inline __u64 flow_finish(__u64 h)
{
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	h ^= h >> 32;
	h &= ~FLOW_LOCKED;
	return h ? h : 2;
}

static __always_inline __u64 flow_tag(const struct flow_secret *s, const struct tuple *t, bool v6)
{
	return flow_finish(hash_keyed(s->k, t, v6));
}

static __always_inline struct flow_secret *flow_secret_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&flow_secret, &zero);
}

/* An entry in hand: where it is, and what its word was. */
struct flow_ref {
	struct flow_set *set;
	struct flow *flow;
	__u64 tag;
	__u64 word;
	__u32 first; /* index of the set's first entry in flow_data */
	__u32 index; /* of this entry */
};

static __always_inline __u64 flow_tag_of(const struct flow *flow)
{
	return *(volatile __u64 *)&flow->tag & ~FLOW_LOCKED;
}

/* One where two tags differ, else zero. Without a branch: which way of a line a
 * flow is in is nothing that a CPU can foresee.
 */
static __always_inline __u32 flow_differs(__u64 a, __u64 b)
{
	__u64 differ = a ^ b, less = -differ;

	asm volatile("" : "+r"(less)); /* or the compiler makes it a branch */
	return (differ | less) >> 63;
}

COPIES(flow_copies, struct flow_set);
COPIES(flow_data_copies, struct flow_data);
COPIES(flow_back_copies, struct flow_back);

#ifdef TRACING

/* Makes a copy of a set as good as a reading of it: another CPU may have held the
 * lock while it was copied, and given entries to other flows, which are then
 * nobody's here. The atomic operation is a barrier, too.
 */
static __always_inline void flow_copy_settle(struct flow_set *copy, const struct flow_set *live)
{
	__u64 was = __sync_fetch_and_and(&copy->way[0].tag, ~FLOW_LOCKED);

	asm volatile("" ::"r"(was)); /* or it is no fetch, and no barrier */
#pragma unroll
	for (int i = 0; i < FLOW_WAYS; i++) {
		__u64 *tag = &copy->way[i].tag;

		*tag &= (__u64)flow_differs(flow_tag_of(&live->way[i]), *tag) - 1;
	}
}

#endif

static __always_inline struct flow_set *flow_set_at(__u32 index)
{
	struct flow_set *live = bpf_map_lookup_elem(&flows, &index);

#ifdef TRACING
	struct flow_set *copy = bpf_map_lookup_elem(&flow_copies, &index);

	if (copy || !live)
		return copy;
	copy = copy_make(&flow_copies, index, live);
	if (copy)
		flow_copy_settle(copy, live);
	return copy;
#else
	return live;
#endif
}

/* The set of a tag, and the index of its first entry. */
static __always_inline struct flow_set *flow_set_of(__u64 tag, __u32 *first)
{
	__u32 set = (tag >> 32) * flow_sets >> 32;

	*first = set * FLOW_WAYS;
	return flow_set_at(set);
}

static __always_inline bool flow_ref_init(struct flow_ref *r, __u64 tag)
{
	r->tag = tag;
	r->set = flow_set_of(tag, &r->first);
	r->flow = NULL;
	return r->set;
}

/* The i-th way to look at: those of the home line first. */
static __always_inline __u32 flow_way(__u64 tag, __u32 i)
{
	return (((tag >> 1) & FLOW_LINE) ^ i) & (FLOW_WAYS - 1);
}

/* Reads the word of an entry whose tag was read, and by whose address it depends on
 * that, and the tag again. False: it was taken meanwhile.
 */
static __always_inline bool flow_read(struct flow_ref *r, struct flow *flow)
{
	__u64 word = *(volatile __u64 *)&flow->word;

	if (flow_tag_of((void *)flow + order_after(word)) != r->tag)
		return false;
	r->word = word;
	r->flow = flow;
	return true;
}

/* Whether all that was read of an entry since its tag was is that flow's. */
static __always_inline bool flow_holds(const struct flow_ref *r)
{
	order_loads();
	return flow_tag_of(r->flow) == r->tag;
}

/* The way of a line that has the tag; FLOW_LINE: none has. */
static __always_inline __u32 flow_way_of(const struct flow *line, __u64 tag)
{
	__u32 before = 1, way = 0;

#pragma unroll
	for (__u32 i = 0; i < FLOW_LINE; i++) {
		before &= flow_differs(flow_tag_of(&line[i]), tag);
		way += before;
	}
	return way;
}

/* Finds the entry of r->tag, in its home line or in the other one. */
static __always_inline bool flow_find(struct flow_ref *r)
{
#pragma unroll
	for (__u32 i = 0; i < FLOW_WAYS; i += FLOW_LINE) {
		__u32 first = flow_way(r->tag, i) & FLOW_LINE;
		__u64 way = flow_way_of(&r->set->way[first], r->tag);

		if (way < FLOW_LINE) {
			way |= first;
			asm volatile("" : "+r"(way)); /* Linux 6.1 has to see a mask */
			way &= FLOW_WAYS - 1;
			r->index = r->first + way;
			return flow_read(r, &r->set->way[way]);
		}
	}
	return false;
}

static __always_inline void connections_add(__u32 server, __s64 n)
{
	__u64 *count = bpf_map_lookup_elem(&connections, &server);

	if (count && !tracing)
		__sync_fetch_and_add(count, n);
}

/* What a flow of a word adds to them. One that lingers adds nothing. */
static __always_inline __s64 flow_counts(__u64 word)
{
	__u32 bit = FLOW_BIT(flow_state(word));

	if (bit & FLOW_GOES_ON)
		return CONNECTION_GOES_ON;
	return bit & FLOW_HAS_ENDED ? CONNECTION_HAS_ENDED : 0;
}

/* All of a server's connections, each that goes on so many times. */
static __always_inline __u64 connections_of(__u32 server, __u32 times)
{
	__u64 *count = bpf_map_lookup_elem(&connections, &server);
	__s64 both, ended, all;

	if (!count)
		return 0;
	/* Each half may be below zero until the agent has counted anew. */
	both = *(volatile __s64 *)count;
	ended = (__s32)both;
	all = (both - ended) >> 32;
	all = all * times + ended;
	return all > 0 ? all : 0;
}

static __always_inline struct flow_data *flow_data_at(__u32 index)
{
	return writable(flow_data_copies, index, bpf_map_lookup_elem(&flow_data, &index));
}

static __always_inline struct flow_back *flow_back_at(__u32 line)
{
	return writable(flow_back_copies, line, bpf_map_lookup_elem(&flow_back, &line));
}

/* Frees the answers' place of an entry, unless it is another's by now. */
static __always_inline void flow_back_free(__u32 index)
{
	struct flow_data *data = flow_data_at(index);
	struct flow_back *set;
	__u32 place, line;
	__u64 *way, was;

	if (!data || !data->back)
		return;
	place = data->back - 1;
	data->back = 0;
	line = place / FLOW_BACK_WAYS;
	set = flow_back_at(line);
	if (!set)
		return;
	way = &set->way[place % FLOW_BACK_WAYS];
	was = *(volatile __u64 *)way;
	if ((__u32)was == index + 1)
		__sync_val_compare_and_swap(way, was, 0);
}

/* The server of an entry, unless it is gone or another by now. */
static __always_inline struct server *flow_server_alive(__u64 word)
{
	struct server *s = server_lookup(flow_server(word));

	return s && flow_generation_is(word, s->generation) ? s : NULL;
}

/* What was there is no more. A server that is gone has left its number, and the
 * count with it, to another one, which does not lose what it never had.
 */
static __always_inline void flow_forget(__u64 word, __u32 index)
{
	if (flow_counts(word) && flow_server_alive(word))
		connections_add(flow_server(word), -flow_counts(word));
	if (word & FLOW_NAT)
		flow_back_free(index);
}

#endif
