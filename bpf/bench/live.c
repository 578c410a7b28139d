/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Live traffic for a program on one end of a veth. The kernel sends frames
 * (BPF_F_TEST_XDP_LIVE_FRAMES) through `generate`, which turns each into a packet of
 * the next flow and redirects it into the other end. Returned frames end in `sink`.
 * `swap` in place of the load balancer is the reference.
 */
#include "common.h"
#include "parse.h"

#define FRAME_BYTES 64

/* Set and read by Go. */
struct live {
	__u64 frame[FRAME_BYTES / 8]; /* as received, except the client's address and port */
	__u64 turn;		      /* counts frames sent */
	__u64 flows;		      /* a mask: number of flows minus one */
	__u32 out;		      /* the egress interface */
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct live);
} live SEC(".maps");

/* Frames that came back, and their bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} sunk SEC(".maps");

/* The kernel reuses a page as the last packet left it, so the complete header is
 * rewritten. Flows come in an order that no cache can predict.
 */
SEC("xdp")
int generate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 zero = 0, flow;
	struct live *l = bpf_map_lookup_elem(&live, &zero);

	if (!l || data + FRAME_BYTES > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	flow = (l->turn++ * 0x9e3779b1) & l->flows;
#pragma unroll
	for (int i = 0; i < FRAME_BYTES / 8; i++)
		((__u64 *)data)[i] = l->frame[i];
	ip->saddr = bpf_htonl(0x0b000000 + (flow >> 14));
	((struct tcphdr *)(ip + 1))->source = bpf_htons(1024 + (flow & 0x3fff));
	return bpf_redirect(l->out, 0);
}

SEC("xdp")
int swap(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	struct ethhdr *eth = data, before;

	if (data + sizeof(*eth) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	before = *eth;
	__builtin_memcpy(eth->h_dest, before.h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, before.h_dest, ETH_ALEN);
	return XDP_TX;
}

SEC("xdp")
int sink(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	__u32 frames = 0, bytes = 1;
	__u64 *n = bpf_map_lookup_elem(&sunk, &frames);
	__u64 *b = bpf_map_lookup_elem(&sunk, &bytes);

	/* Ignores packets that the kernel itself sends on a new link (IPv6). */
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_DROP;
	if (n && b) {
		(*n)++;
		*b += ctx->data_end - ctx->data;
	}
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
