/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Measures an XDP program. BPF_PROG_TEST_RUN repeats a program without restoring its
 * packet, so a load balancer would see its own output from the second iteration on.
 * The harness runs in its place: it rewrites the complete frame for the next flow and
 * calls the program under test, which replaces under_test before loading
 * (lab/bench/xdpbench/rig.go).
 */
#include "common.h"
#include "csum.h"
#include "hash.h"
#include "parse.h"

#define FRAME_BYTES 80
#define PACKETS_A_RUN 128
#define BACK_FLOWS 1024

/* An attack and the measured flows arrive in two NIC queues. The driver takes a fixed
 * number of packets from each in alternation (NAPI_POLL_WEIGHT). The kernel allows 33
 * tail calls per run of the harness, and each attack packet may need one, so the
 * attack's packets take two runs.
 */
#define ATTACK_BURST 64
#define ATTACK_RUNS 2
/* A burst that takes longer was interrupted. */
#define BURST_NS (ATTACK_BURST * 2000)

/* Set and read by Go. */
struct bench {
	__u64 frame[FRAME_BYTES / 8]; /* as received, except addresses and ports */
	__u64 turn;		      /* counts packets */
	__u64 flows;		      /* a mask: number of flows minus one */
	__u64 vips;		      /* number of VIPs */
	__u64 verdicts[8];
	__u64 ns;    /* duration of bursts during an attack, */
	__u64 timed; /* and their number of packets */
	__u32 vip;   /* the first, host order */
	__u32 v6;    /* vip and client are the last words of IPv6 addresses */
	__u32 back;  /* IPv4 packets of a backend, whose frame is complete except for ... */
	__u32 zero;
	__be16 ports[BACK_FLOWS]; /* ... the port that represents the flow */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench);
} bench SEC(".maps");

/* What varies between packets of an attack, which is IPv4. */
enum attack_kind {
	ATTACK_FLOWS,	/* address and port */
	ATTACK_SOURCES, /* the address */
	ATTACK_LISTED,	/* address and port, from a list */
};

const enum attack_kind *unused_attack_kind __attribute__((unused)); /* for bpf2go */

#define ATTACK_LIST 1024

struct attack {
	__u64 frame[FRAME_BYTES / 8];
	__u64 turn;
	__u64 run; /* counts runs */
	__u64 verdicts[8];
	enum attack_kind kind;
	__u32 end; /* a program changes the frame's end, not its beginning */
	__u32 on;
	__u32 zero;
	__u64 ns; /* duration of the attack, in ... */
	__u64 runs;
	__u64 wait; /* ns that a run waits while the attack is off */
	__be32 clients[ATTACK_LIST];
	__be16 ports[ATTACK_LIST];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct attack);
} attacks SEC(".maps");

/* Global, so that the verifier checks it separately. */
__noinline int under_test(struct xdp_md *ctx)
{
	int verdict = XDP_ABORTED;

	asm volatile("" : "+r"(verdict) : "r"(ctx));
	return verdict;
}

/* Flows come in an order that no cache can predict. */
static __always_inline bool restore(struct xdp_md *ctx, struct bench *b)
{
	__u32 flow = (b->turn * 0x9e3779b1) & b->flows;
	int grown = (int)(ctx->data_end - ctx->data) - FRAME_BYTES;
	__be32 client = bpf_htonl(0x0b000000 + (flow >> 14));
	__be32 vip = bpf_htonl(b->vip + ((__u64)(flow * 0x85ebca6b) * b->vips >> 32));
	__be16 port = bpf_htons(1024 + (flow & 0x3fff));
	void *data;

	if (grown && bpf_xdp_adjust_head(ctx, grown))
		return false;
	data = (void *)(long)ctx->data;
	if (data + FRAME_BYTES > (void *)(long)ctx->data_end)
		return false;
#pragma unroll
	for (int i = 0; i < FRAME_BYTES / 8; i++)
		((__u64 *)data)[i] = b->frame[i];
	if (b->back) {
		struct iphdr *ip = data + sizeof(struct ethhdr);

		((struct udphdr *)(ip + 1))->dest = b->ports[flow % BACK_FLOWS];
	} else if (b->v6) {
		struct ipv6hdr *ip = data + sizeof(struct ethhdr);

		ip->saddr.in6_u.u6_addr32[3] = client;
		ip->daddr.in6_u.u6_addr32[3] = vip;
		((struct udphdr *)(ip + 1))->source = port;
	} else {
		struct iphdr *ip = data + sizeof(struct ethhdr);

		ip->saddr = client;
		ip->daddr = vip;
		((struct udphdr *)(ip + 1))->source = port;
	}
	return true;
}

/* Writes the next packet of an attack. */
static __always_inline bool attack(struct xdp_md *ctx, const struct attack *a)
{
	__u32 turn = a->turn, at = turn % ATTACK_LIST;
	struct iphdr *ip;
	void *data = (void *)(long)ctx->data;

	if (data + FRAME_BYTES > (void *)(long)ctx->data_end)
		return false;
#pragma unroll
	for (int i = 0; i < FRAME_BYTES / 8; i++)
		((__u64 *)data)[i] = a->frame[i];
	ip = data + sizeof(struct ethhdr);
	/* In 12/8, which no measured flow uses. */
	ip->saddr = bpf_htonl(0x0c000000 | (turn * 0x9e3779b1 >> 8));
	if (a->kind == ATTACK_FLOWS)
		((struct udphdr *)(ip + 1))->source = bpf_htons(turn * 0x85ebca6b >> 16 | 1024);
	if (a->kind == ATTACK_LISTED) {
		ip->saddr = a->clients[at];
		((struct udphdr *)(ip + 1))->source = a->ports[at];
	}
	return true;
}

/* Restores the frame's length after a program has changed its beginning or end. */
static __always_inline bool unwind(struct xdp_md *ctx, bool end)
{
	int grown = (int)(ctx->data_end - ctx->data) - FRAME_BYTES;

	if (!grown)
		return true;
	return !(end ? bpf_xdp_adjust_tail(ctx, -grown) : bpf_xdp_adjust_head(ctx, grown));
}

/* Many packets per run, so that the kernel's overhead between runs does not count. */
SEC("xdp")
int harness(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct bench *b = bpf_map_lookup_elem(&bench, &zero);

	if (!b)
		return XDP_ABORTED;
	for (int i = 0; i < PACKETS_A_RUN; i++) {
		if (!restore(ctx, b))
			return XDP_ABORTED;
		b->turn++;
		b->verdicts[under_test(ctx) & 7]++;
	}
	return XDP_PASS;
}

/* Maximum number of clock reads per wait: each takes about 20 ns. */
#define WAIT_MAX 4096

/* Waits as long as an attack takes, so that other CPUs' effect on a shared cache and
 * work done once per clock tick are the same with and without the attack.
 */
static __always_inline bool idle(const struct attack *a)
{
	__u64 end = bpf_ktime_get_ns() + a->wait;

	for (int i = 0; i < WAIT_MAX; i++)
		if (bpf_ktime_get_ns() >= end)
			break;
	return true;
}

static __always_inline bool send_attack(struct xdp_md *ctx, struct attack *a)
{
	__u64 began = bpf_ktime_get_ns();

	for (int i = 0; i < ATTACK_BURST / ATTACK_RUNS; i++) {
		if (!attack(ctx, a))
			return false;
		a->turn++;
		a->verdicts[under_test(ctx) & 7]++;
		if (!unwind(ctx, a->end))
			return false;
	}
	a->ns += bpf_ktime_get_ns() - began;
	a->runs++;
	return true;
}

static __always_inline bool send_timed(struct xdp_md *ctx, struct bench *b)
{
	__u64 began = bpf_ktime_get_ns(), took;

	for (int i = 0; i < ATTACK_BURST; i++) {
		if (!restore(ctx, b))
			return false;
		b->turn++;
		b->verdicts[under_test(ctx) & 7]++;
	}
	took = bpf_ktime_get_ns() - began;
	if (took < BURST_NS) {
		b->ns += took;
		b->timed += ATTACK_BURST;
	}
	return unwind(ctx, false);
}

/* Bursts of an attack and of flows alternate. Only the latter are timed. Supports
 * fragments, like the load balancer programs that it calls.
 */
SEC("xdp.frags")
int attacked(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct bench *b = bpf_map_lookup_elem(&bench, &zero);
	struct attack *a = bpf_map_lookup_elem(&attacks, &zero);

	if (!a || !b)
		return XDP_ABORTED;
	if (a->run++ % (ATTACK_RUNS + 1) == ATTACK_RUNS)
		return send_timed(ctx, b) ? XDP_PASS : XDP_ABORTED;
	return (a->on ? send_attack(ctx, a) : idle(a)) ? XDP_PASS : XDP_ABORTED;
}

/* The floors: the minimum cost of any load balancer. */
SEC("xdp")
int floor_tx(struct xdp_md *ctx)
{
	asm volatile("" : : "r"(ctx));
	return XDP_TX;
}

SEC("xdp")
int floor_parse(struct xdp_md *ctx)
{
	struct ethhdr *eth;
	struct iphdr *ip;
	struct cursor c;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	eth = parse_eth(&c);
	if (!eth || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	ip = parse_ipv4(&c);
	if (!ip || ip->ihl != 5 || ip->protocol != IPPROTO_TCP || !parse_tcp(&c))
		return XDP_PASS;
	return XDP_TX;
}

/* The bare load balancers: the minimum without checks and kernel queries: parse, VIP,
 * backend, one counter, an outer header.
 */
struct bare_vip {
	__be32 addr;
	__be16 port;
	__u16 proto;
	__be32 zero[3]; /* the key of load balancers with IPv6 has 20 bytes */
};

#define BARE_VIPS 16384

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BARE_VIPS);
	__type(key, struct bare_vip);
	__type(value, __u32);
} bare_vips SEC(".maps");

/* A slot with four owners. */
struct bare_slot {
	__u32 owners[4];
};

#define BARE_SLOTS 65537

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BARE_SLOTS);
	__type(key, __u32);
	__type(value, struct bare_slot);
} bare_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 128);
	__type(key, __u32);
	__type(value, __be32);
} bare_servers SEC(".maps");

/* Rings of many VIPs with eight bytes per slot, in as much memory as the load
 * balancer uses for as many. The sizes are set before loading.
 */
volatile const __u32 bare_slots SEC(".rodata.bare") = 1; /* of each ring */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} bare_rings SEC(".maps");

struct bare_count {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BARE_VIPS);
	__type(key, __u32);
	__type(value, struct bare_count);
} bare_counts SEC(".maps");

/* A cache line of four flows; two million in total. */
struct bare_set {
	struct {
		__u64 flow;
		__u32 server;
		__u32 turn;
	} way[4];
};

#define BARE_SETS (1 << 19)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BARE_SETS);
	__type(key, __u32);
	__type(value, struct bare_set);
} bare_flows SEC(".maps");

static __always_inline __u32 bare_from_ring(__u64 hash)
{
	__u32 slot = (hash >> 32) * BARE_SLOTS >> 32;
	struct bare_slot *s = bpf_map_lookup_elem(&bare_ring, &slot);

	return s ? s->owners[0] : 0;
}

static __always_inline __u32 bare_from_rings(__u64 hash, __u32 vip)
{
	__u32 slot = vip * bare_slots + ((hash >> 32) * bare_slots >> 32);
	const __u64 *s = bpf_map_lookup_elem(&bare_rings, &slot);

	return s ? *s : 0;
}

/* Returns the flow's backend. A missing flow replaces the oldest. */
static __always_inline __u32 bare_from_flows(__u64 hash)
{
	__u32 key = hash & (BARE_SETS - 1);
	struct bare_set *set = bpf_map_lookup_elem(&bare_flows, &key);
	__u32 oldest = 0, turn = 0;

	if (!set)
		return 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (set->way[i].flow == hash)
			return set->way[i].server;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (set->way[i].turn < set->way[oldest & 3].turn)
			oldest = i;
		if (set->way[i].turn > turn)
			turn = set->way[i].turn;
	}
	oldest &= 3;
	set->way[oldest].flow = hash;
	set->way[oldest].server = bare_from_ring(hash);
	set->way[oldest].turn = turn + 1;
	return set->way[oldest].server;
}

static __always_inline int bare_encapsulate(struct xdp_md *ctx, __u32 server, __u16 len)
{
	__be32 *addr = bpf_map_lookup_elem(&bare_servers, &server);
	struct ethhdr *eth;
	struct iphdr *ip;
	__be32 dst;

	if (!addr)
		return XDP_DROP;
	dst = *addr;
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*ip)))
		return XDP_DROP;
	eth = (void *)(long)ctx->data;
	ip = (void *)(eth + 1);
	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memset(eth, 2, 2 * ETH_ALEN);
	eth->h_proto = bpf_htons(ETH_P_IP);
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = 5;
	ip->tot_len = bpf_htons(len + sizeof(*ip));
	ip->ttl = 64;
	ip->protocol = IPPROTO_IPIP;
	ip->saddr = bpf_htonl(0x0a000001);
	ip->daddr = dst;
	ip->check = csum_ipv4(ip, sizeof(*ip));
	return XDP_TX;
}

enum bare_memory { BARE_RING, BARE_RINGS, BARE_FLOWS };

static __always_inline int bare(struct xdp_md *ctx, enum bare_memory memory)
{
	struct bare_vip key = {};
	struct bare_count *count;
	struct ethhdr *eth;
	struct tcphdr *tcp;
	struct iphdr *ip;
	struct cursor c;
	__u64 hash;
	__u32 *vip;
	__u16 len;

	cursor_init(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	eth = parse_eth(&c);
	if (!eth || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	ip = parse_ipv4(&c);
	if (!ip || ip->ihl != 5 || ip->protocol != IPPROTO_TCP)
		return XDP_PASS;
	tcp = parse_tcp(&c);
	if (!tcp)
		return XDP_PASS;
	key.addr = ip->daddr;
	key.port = tcp->dest;
	key.proto = ip->protocol;
	len = bpf_ntohs(ip->tot_len);
	hash = ((__u64)ip->saddr << 32 | (__u64)tcp->source << 16 | tcp->dest) * HASH_K0;
	hash ^= hash >> 32;
	hash *= HASH_K1;
	vip = bpf_map_lookup_elem(&bare_vips, &key);
	if (!vip)
		return XDP_PASS;
	count = bpf_map_lookup_elem(&bare_counts, vip);
	if (!count)
		return XDP_PASS;
	count->packets++;
	count->bytes += len;
	if (memory == BARE_RINGS)
		return bare_encapsulate(ctx, bare_from_rings(hash, *vip), len);
	if (memory == BARE_FLOWS)
		return bare_encapsulate(ctx, bare_from_flows(hash), len);
	return bare_encapsulate(ctx, bare_from_ring(hash), len);
}

SEC("xdp")
int floor_bare(struct xdp_md *ctx)
{
	return bare(ctx, BARE_RING);
}

SEC("xdp")
int floor_bare_rings(struct xdp_md *ctx)
{
	return bare(ctx, BARE_RINGS);
}

SEC("xdp")
int floor_bare_flows(struct xdp_md *ctx)
{
	return bare(ctx, BARE_FLOWS);
}

/* Not measured: returns addr_hash of the 16 input bytes, for golden tests. */
SEC("xdp")
int hash_of_address(struct xdp_md *ctx)
{
	struct addr *a = (void *)(long)ctx->data;

	if ((void *)(a + 1) > (void *)(long)ctx->data_end)
		return 0;
	return addr_hash(a);
}

char _license[] SEC("license") = "Dual BSD/GPL";
