/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Forwarding modes without encapsulation pass information to the backend's node in
 * the packet's own header: the original destination, then the chain. A packet that
 * may open a flow always carries it, any other packet only if there is a chain.
 *
 * All headers before the new option are read first and rewritten in front of it, so
 * that no data needs to move.
 */
#ifndef FAIRLEAD_BALANCER_DSR_OPTION_H
#define FAIRLEAD_BALANCER_DSR_OPTION_H

#include "auth_front.h"
#include "chain.h"
#include "egress.h"

/* How a packet is sent. */
struct dsr_send {
	struct addr dst __attribute__((aligned(8)));
	enum way way;
	__u32 bytes;  /* of the option */
	__be16 dport; /* the packet's new destination port */
};

static __always_inline bool needs_dsr_option(const struct packet *p, const struct chain *chain)
{
	return chain || opens(p) || p->t.proto == IPPROTO_UDP;
}

/* Copies the MAC addresses as received, or those for the next hop. */
static __always_inline void dsr_option_macs(__u32 *macs, const struct ethhdr *eth,
					    const struct next_hop *hop, enum way way)
{
	if (way == WAY_KERNEL)
		macs_copy(macs, eth);
	else
		macs_copy(macs, hop->macs);
}

/* Returns the option's size. */
static __always_inline __u32 dsr_option_bytes(const struct chain *chain, bool v6)
{
	return auth_policy ? auth_own_bytes(chain, v6) : option_bytes(1 + chain_length(chain), v6);
}

/* Builds the option if it needs a tag, and adds its checksum to sum. */
static __always_inline bool dsr_option_tagged(const struct packet *p, const struct dsr_send *t,
					      const struct chain *chain, __u64 *sum)
{
	struct auth_scratch *s = auth_scratch_get();

	if (!s)
		return false;
	auth_packet(&p->t.src, &t->dst, p);
	s->inner.dport = t->dport;
	if (auth_own(p, chain))
		return false;
	if (sum)
		*sum += auth_sum(s, 0, t->bytes);
	return true;
}

/* Grows the packet by t->bytes after its IP header, writes the option there and sets
 * the destination to t->dst. Returns 0, or -1 on failure. Updates the checksum
 * incrementally: a header that arrived broken must not leave valid. Global, so that
 * the verifier checks it once, regardless of the maps that hold the backend and its
 * chain.
 */
__noinline int add_dsr_option_v4(struct xdp_md *ctx, const struct packet *p,
				 const struct dsr_send *t, const struct next_hop *hop,
				 const struct chain *chain)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__be32 word[5], *ip = data + sizeof(struct ethhdr);
	__u32 macs[3], bytes;
	__u64 diff = 0;

	if (!p || !t || !hop || (void *)(ip + 5) > end)
		return -1;
	bytes = t->bytes;
	dsr_option_macs(macs, data, hop, t->way);
#pragma unroll
	for (int i = 0; i < 5; i++)
		word[i] = ip[i];
	if (auth_policy && !dsr_option_tagged(p, t, chain, &diff))
		return -1;
	if (bpf_xdp_adjust_head(ctx, -(int)bytes))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = data + sizeof(struct ethhdr);
	if ((void *)(ip + 5) > end)
		return -1;
	if (!auth_policy && !option_put_own_v4(ip + 5, end, p, chain, &diff))
		return -1;
	macs_copy(data, macs);
	((struct ethhdr *)data)->h_proto = bpf_htons(ETH_P_IP);
	diff = csum_diff4(csum_diff4(diff, word[0], 0), word[4], addr_to_v4(&t->dst));
	word[0] = bpf_htonl(4u << 28 | (5 + bytes / 4) << 24 | p->tos << 16 | (p->len + bytes));
	diff = csum_diff4(diff, 0, word[0]);
	if (t->way != WAY_KERNEL) {
		diff = csum_diff2(diff, bpf_htons(0x0100), 0);
		word[2] -= bpf_htonl(0x01000000);
	}
	ip[0] = word[0];
	ip[1] = word[1];
	ip[2] = (word[2] & bpf_htonl(0xffff0000)) |
		bpf_htonl(bpf_ntohs(csum_apply(bpf_htons(bpf_ntohl(word[2])), diff)));
	ip[3] = word[3];
	ip[4] = addr_to_v4(&t->dst);
	if (auth_policy)
		return auth_store(ctx, sizeof(struct ethhdr) + sizeof(struct iphdr), bytes) ? 0
											    : -1;
	return 0;
}

__noinline int add_dsr_option_v6(struct xdp_md *ctx, const struct packet *p,
				 const struct dsr_send *t, const struct next_hop *hop,
				 const struct chain *chain)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv6hdr *ip = data + sizeof(struct ethhdr);
	__u32 macs[3], bytes;
	__be32 first;

	if (!p || !t || !hop || (void *)(ip + 1) > end)
		return -1;
	bytes = t->bytes;
	dsr_option_macs(macs, data, hop, t->way);
	first = *(__be32 *)ip;
	if (auth_policy && !dsr_option_tagged(p, t, chain, NULL))
		return -1;
	if (bpf_xdp_adjust_head(ctx, -(int)bytes))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = data + sizeof(struct ethhdr);
	if ((void *)(ip + 1) > end)
		return -1;
	if (!auth_policy && !option_put_own_v6(ip + 1, end, p, chain))
		return -1;
	macs_copy(data, macs);
	((struct ethhdr *)data)->h_proto = bpf_htons(ETH_P_IPV6);
	*(__be32 *)ip = first;
	ip->payload_len = bpf_htons(p->len - sizeof(*ip) + bytes);
	ip->nexthdr = IPPROTO_DSTOPTS;
	ip->hop_limit = p->ttl - (t->way != WAY_KERNEL);
	addr_copy(&ip->saddr, &p->t.src);
	addr_copy(&ip->daddr, &t->dst);
	if (auth_policy)
		return auth_store(ctx, sizeof(struct ethhdr) + sizeof(struct ipv6hdr), bytes) ? 0
											      : -1;
	return 0;
}

/* The same, by family. */
static __always_inline bool add_dsr_option(struct xdp_md *ctx, const struct packet *p,
					   const struct choice *ch, const struct dsr_send *t,
					   bool v6)
{
	return (v6 ? add_dsr_option_v6(ctx, p, t, ch->hop, ch->chain)
		   : add_dsr_option_v4(ctx, p, t, ch->hop, ch->chain)) == 0;
}

/* Finds the next hop and the option size. A nonzero result is the packet's verdict. A
 * full-size datagram gets no option: other packets carry it for its flow.
 */
static __always_inline int plan_dsr_option(struct xdp_md *ctx, const struct packet *p,
					   const struct choice *ch, struct dsr_send *t)
{
	t->way = way_to(ctx, ch);
	if (way_leads_nowhere(t->way))
		return drop_way(ctx, t->way);
	if (t->bytes && !way_fits(t->way, ch, p->len + t->bytes) && p->t.proto == IPPROTO_UDP)
		t->bytes = 0;
	return way_fits(t->way, ch, p->len + t->bytes) ? 0 : TO_SLOW_PATH_TOO_BIG;
}

#endif
