/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow table: a set-associative cache in an array, so that a lookup touches one
 * cache line, regardless of age. A set has two lines of four entries. A flow has a
 * home line and uses the other one if the home line is full. Rarely needed data is in
 * flow_data, one line per entry.
 *
 *   tag --high bits--> flows[set] --way--> tag, word
 *                                    \--> flow_data[set * 8 + way]
 *
 * The tag is a hash of the tuple with a secret key, so that nobody outside can target
 * a set. To give an entry to another flow a CPU takes the set's lock (flow_open.h)
 * and zeroes the tag meanwhile: a reader checks the tag before and after it reads the
 * rest (order.h). A word is changed without the lock, by compare-and-swap: the agent
 * sets words of ended flows to FLOW_FREE.
 */
#ifndef FAIRLEAD_BALANCER_FLOW_H
#define FAIRLEAD_BALANCER_FLOW_H

#include "choose.h"
#include "flow_word.h"
#include "maps.h"
#include "order.h"

#define FLOW_LINE 4
#define FLOW_WAYS (2 * FLOW_LINE)
#define FLOW_LOCKED 1ULL /* in the tag of a set's first entry: the set is locked */

struct flow {
	__u64 tag;  /* 0: free */
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

/* Number of sets, which are the entries of flows. */
const volatile __u32 flow_sets = 1;

/* Numbers of a connection with direct server return. TCP: the sequence and
 * acknowledgment numbers of the client's first packet after its SYN (the latter from
 * its FIN, once a proven one was seen). SCTP: the verification tag in both.
 */
struct flow_numbers {
	__u32 seq; /* host order */
	__u32 ack;
	__u32 zero;
};

/* Both directions of a flow and, for nat and fullnat, the next hop to its client as
 * of this clock tick. A flow without FLOW_NAT has this only once it is no longer
 * opening, so that a flood need not touch these lines.
 */
struct flow_data {
	struct addr client;
	struct addr vip; /* as addressed, also in a port range */
	__be16 client_port;
	__be16 vip_port;
	__be16 nat_port; /* fullnat: our source port to the backend */
	__u16 mtu;
	__u32 back;   /* its entry in flow_back + 1; 0: none */
	__u32 egress; /* interface; the highest byte is the protocol */
	__u32 tick;
	__u8 macs[12] __attribute__((aligned(4))); /* direct server return: struct flow_numbers */
};

/* Set in the protocol of a flow with translated sequence numbers (syn_proxy.h).
 * Lookups by the plain protocol do not match such a flow.
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

/* An entry for a reply's flow: half of the reply's hash, and the flow's index + 1. */
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

/* Connections of each backend, by id: active ones in the upper half of the number,
 * ended ones in the lower half. The agent recounts them once a second, because
 * updates on different CPUs may be lost.
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

/* The key of the tags, generated once by the agent. */
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

/* The last clock reading and, below it, the kernel tick in which it was taken: it
 * does not change within a tick. One word, so that no CPU sees a partial update.
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

/* Mixes every bit of a sum into every other bit. */
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

/* Returns the tag of a tuple with the table's key, or 0 without a key. */
static __always_inline __u64 flow_tuple_tag(const struct tuple *t, bool v6)
{
	struct flow_secret *secret = flow_secret_get();

	return secret ? flow_tag(secret, t, v6) : 0;
}

/* A reference to an entry: its position and the word that was read. */
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

/* Returns 1 if two tags differ, else 0. Branch-free, because a CPU cannot predict
 * which way of a line a flow is in.
 */
static __always_inline __u32 flow_differs(__u64 a, __u64 b)
{
	__u64 differ = a ^ b, less = -differ;

	asm volatile("" : "+r"(less)); /* else the compiler makes it a branch */
	return (differ | less) >> 63;
}

COPIES(flow_copies, struct flow_set);
COPIES(flow_data_copies, struct flow_data);
COPIES(flow_back_copies, struct flow_back);

#ifdef TRACING

/* Makes a copy of a set as consistent as a read: another CPU may have held the lock
 * during the copy and reassigned entries, which are cleared here. The atomic
 * operation is also a barrier.
 */
static __always_inline void flow_copy_settle(struct flow_set *copy, const struct flow_set *live)
{
	__u64 was = __sync_fetch_and_and(&copy->way[0].tag, ~FLOW_LOCKED);

	asm volatile("" ::"r"(was)); /* else it is no fetch, and no barrier */
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

/* Returns the set of a tag, and the index of its first entry. */
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

/* Returns the i-th way to search, home line first. */
static __always_inline __u32 flow_way(__u64 tag, __u32 i)
{
	return (((tag >> 1) & FLOW_LINE) ^ i) & (FLOW_WAYS - 1);
}

/* Reads the word of an entry after its tag, with an address dependency, then the tag
 * again. Returns false if the entry was reassigned in the meantime.
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

/* Reports whether everything read from an entry since its tag belongs to that flow. */
static __always_inline bool flow_holds(const struct flow_ref *r)
{
	order_loads();
	return flow_tag_of(r->flow) == r->tag;
}

/* Returns the way of a line with this tag, or FLOW_LINE if none matches. */
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

/* Finds the entry of r->tag, in its home line or the other line. */
static __always_inline bool flow_find(struct flow_ref *r)
{
#pragma unroll
	for (__u32 i = 0; i < FLOW_WAYS; i += FLOW_LINE) {
		__u32 first = flow_way(r->tag, i) & FLOW_LINE;
		__u64 way = flow_way_of(&r->set->way[first], r->tag);

		if (way < FLOW_LINE) {
			way |= first;
			asm volatile("" : "+r"(way)); /* Linux 6.1 needs a visible mask */
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

/* Returns what a flow adds to the counts. A lingering flow adds nothing. */
static __always_inline __s64 flow_counts(__u64 word)
{
	__u32 bit = FLOW_BIT(flow_state(word));

	if (bit & FLOW_GOES_ON)
		return CONNECTION_GOES_ON;
	return bit & FLOW_HAS_ENDED ? CONNECTION_HAS_ENDED : 0;
}

/* Returns a backend's connections, with active ones multiplied by times. */
static __always_inline __u64 connections_of(__u32 server, __u32 times)
{
	__u64 *count = bpf_map_lookup_elem(&connections, &server);
	__s64 both, ended, all;

	if (!count)
		return 0;
	/* Either half may be negative until the agent recounts. */
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

/* Frees the reply entry of a flow, unless it has been reassigned. */
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

/* Returns the backend of an entry, or NULL if it is removed or its id was reassigned. */
static __always_inline struct server *flow_server_alive(__u64 word)
{
	struct server *s = server_lookup(flow_server(word));

	return s && flow_generation_is(word, s->generation) ? s : NULL;
}

/* Accounts for a flow that no longer exists. The id and count of a removed backend
 * may already belong to another one, whose count must not drop.
 */
static __always_inline void flow_forget(__u64 word, __u32 index)
{
	if (flow_counts(word) && flow_server_alive(word))
		connections_add(flow_server(word), -flow_counts(word));
	if (word & FLOW_NAT)
		flow_back_free(index);
}

#endif
