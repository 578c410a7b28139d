/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Measures an XDP program. BPF_PROG_TEST_RUN repeats a program without giving
 * it its packet back, so a balancer would see its own output from the second
 * round on. The harness runs in its place: it writes the whole frame anew, of
 * the flow whose turn it is, and calls the program under test, which is put in
 * place of under_test before loading (dataplane/xdp/graft_test.go).
 */
#include "common.h"
#include "hash.h"
#include "parse.h"

#define FRAME_BYTES 80
#define PACKETS_A_RUN 128

/* What Go sets and reads. */
struct bench {
	__u64 frame[FRAME_BYTES / 8]; /* as it comes in, but for addresses and ports */
	__u64 turn;		      /* counts packets */
	__u64 flows;		      /* a mask: one less than how many */
	__u64 vips;		      /* likewise */
	__u64 verdicts[8];
	__u32 vip; /* the first, host order */
	__u32 v6;  /* vip and client are the last words of IPv6 addresses */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench);
} bench SEC(".maps");

/* Global, so that the verifier looks at it by itself. */
__noinline int under_test(struct xdp_md *ctx)
{
	int verdict = XDP_ABORTED;

	asm volatile("" : "+r"(verdict) : "r"(ctx));
	return verdict;
}

/* Flows come in an order that no cache foresees. */
static __always_inline bool restore(struct xdp_md *ctx, struct bench *b)
{
	__u32 flow = (b->turn * 0x9e3779b1) & b->flows;
	int grown = (int)(ctx->data_end - ctx->data) - FRAME_BYTES;
	__be32 client = bpf_htonl(0x0b000000 + (flow >> 14));
	__be32 vip = bpf_htonl(b->vip + (flow & b->vips));
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
	if (b->v6) {
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

/* Many packets a run, so that what the kernel does between two runs does not
 * count.
 */
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

/* The floors: what no balancer can be cheaper than. */
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

/* Not measured: gives addr_hash of the 16 bytes that it is handed, for the goldens. */
SEC("xdp")
int hash_of_address(struct xdp_md *ctx)
{
	struct addr *a = (void *)(long)ctx->data;

	if ((void *)(a + 1) > (void *)(long)ctx->data_end)
		return 0;
	return addr_hash(a);
}

char _license[] SEC("license") = "Dual BSD/GPL";
