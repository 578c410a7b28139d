/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Measures the DSR agent. BPF_PROG_TEST_RUN gives a program the same sk_buff
 * repeatedly, without its tunnel from the second iteration on. So each program here
 * rewrites the headers for the next flow, restores the removed room, and continues in
 * the program under test. That overhead is measured separately: bench_store only
 * writes the headers; bench_room and bench_rooms differ by making room seven more
 * times.
 */
#include <linux/pkt_cls.h>

#include "dsr/reply.h"
#include "dsr/maps.h"
#include "dsr/ingress.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define HEAD_MAX 128
#define ROOM 20

struct server_bench {
	__u8 head[HEAD_MAX];
	__u32 bytes; /* bytes of head to rewrite */
	__u32 len;   /* of the frame */
	__u32 addr;  /* offsets of the client's address (its last word) and port in head */
	__u32 port;
	__u32 flows; /* a mask: number of flows minus one */
	__u32 turn;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct server_bench);
} server_bench SEC(".maps");

static __always_inline struct server_bench *state(void)
{
	__u32 i = 0;

	return bpf_map_lookup_elem(&server_bench, &i);
}

/* Flows come in an order that no cache can predict. */
static __always_inline bool restore_frame(struct __sk_buff *skb)
{
	struct server_bench *b = state();
	__u64 bytes;
	__u32 flow;

	if (!b)
		return false;
	bytes = b->bytes - 1;
	if (b->addr > HEAD_MAX - 4 || b->port > HEAD_MAX - 2 || bytes >= HEAD_MAX)
		return false;
	flow = b->turn++ * 0x9e3779b1 & b->flows;
	*(__be32 *)(b->head + (b->addr & ~1U)) = bpf_htonl(0x0b000000 + (flow >> 14));
	*(__be16 *)(b->head + (b->port & ~1U)) = bpf_htons(1024 + (flow & 0x3fff));
	if (skb->len < b->len &&
	    bpf_skb_adjust_room(skb, b->len - skb->len, BPF_ADJ_ROOM_MAC, ROOM_FLAGS))
		return false;
	barrier_var(bytes);
	return bytes < HEAD_MAX && !bpf_skb_store_bytes(skb, 0, b->head, bytes + 1, 0);
}

SEC("tc")
int bench_empty(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

SEC("tc")
int bench_store(struct __sk_buff *skb)
{
	return restore_frame(skb) ? TC_ACT_UNSPEC : TC_ACT_STOLEN;
}

SEC("tc")
int bench_room(struct __sk_buff *skb)
{
	if (bpf_skb_adjust_room(skb, ROOM, BPF_ADJ_ROOM_MAC, ROOM_FLAGS) ||
	    bpf_skb_adjust_room(skb, -ROOM, BPF_ADJ_ROOM_MAC, ROOM_FLAGS))
		return TC_ACT_STOLEN;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int bench_rooms(struct __sk_buff *skb)
{
	for (int i = 0; i < 8; i++)
		if (bpf_skb_adjust_room(skb, ROOM, BPF_ADJ_ROOM_MAC, ROOM_FLAGS))
			return TC_ACT_STOLEN;
	return bpf_skb_adjust_room(skb, -8 * ROOM, BPF_ADJ_ROOM_MAC, ROOM_FLAGS) ? TC_ACT_STOLEN
										 : TC_ACT_UNSPEC;
}

SEC("tc")
int bench_to_server(struct __sk_buff *skb)
{
	return restore_frame(skb) ? toward(skb, SERVER_PLACE_POD) : TC_ACT_STOLEN;
}

SEC("tc")
int bench_from_server(struct __sk_buff *skb)
{
	return restore_frame(skb) ? back(skb, SERVER_PLACE_POD) : TC_ACT_STOLEN;
}
