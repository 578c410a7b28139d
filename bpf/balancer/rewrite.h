/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rewrites the addresses and ports of a packet in place, including checksums. */
#ifndef FAIRLEAD_BALANCER_REWRITE_H
#define FAIRLEAD_BALANCER_REWRITE_H

#include "crc32c.h"
#include "csum.h"
#include "maps.h"

/* Rewrites only the ports: SCTP's checksum does not cover addresses. */
static __always_inline void rewrite_sctp(struct sctphdr *sctp, const struct tuple *from,
					 const struct tuple *to, __u16 bytes)
{
	__u32 change = (from->sport ^ to->sport) | (__u32)(from->dport ^ to->dport) << 16;

	if (!change)
		return;
	sctp->source = to->sport;
	sctp->dest = to->dport;
	sctp->checksum ^= crc32c_change(change, bytes);
}

/* Rewrites ports and checksum of the transport header. bytes includes its data. diff
 * is the change in the pseudo-header. Returns false if the frame is too short.
 */
static __always_inline bool rewrite_l4(void *l4, void *end, const struct tuple *from,
				       const struct tuple *to, __u64 diff, __u16 bytes)
{
	if (from->proto == IPPROTO_SCTP) {
		struct sctphdr *sctp = l4;

		if ((void *)(sctp + 1) > end)
			return false;
		rewrite_sctp(sctp, from, to, bytes);
		return true;
	}
	diff = csum_diff2(diff, from->sport, to->sport);
	diff = csum_diff2(diff, from->dport, to->dport);
	if (from->proto == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end)
			return false;
		tcp->source = to->sport;
		tcp->dest = to->dport;
		tcp->check = csum_apply(tcp->check, diff);
	} else {
		struct udphdr *udp = l4;

		if ((void *)(udp + 1) > end)
			return false;
		udp->source = to->sport;
		udp->dest = to->dport;
		udp->check = csum_apply_udp(udp->check, diff);
	}
	return true;
}

/* The same for a new destination port. */
static __always_inline bool rewrite_dport(void *l4, void *end, const struct tuple *from,
					  __be16 dport, __u64 diff, __u16 bytes)
{
	struct tuple to;

	to.sport = from->sport;
	to.dport = dport;
	return rewrite_l4(l4, end, from, &to, diff, bytes);
}

/* Returns the checksum difference of an address change, for the pseudo-header and the
 * IPv4 header.
 */
static __always_inline __u64 rewrite_diff(const struct tuple *from, const struct tuple *to, bool v6)
{
	__u64 diff = csum_diff_addr(0, &from->src, &to->src, v6);

	return csum_diff_addr(diff, &from->dst, &to->dst, v6);
}

/* Rewrites the packet to `to`. Its IP header has no options. */
static __always_inline bool rewrite(struct xdp_md *ctx, const struct packet *p,
				    const struct tuple *to, bool v6)
{
	const struct tuple *from = &p->t;
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	void *l3 = data + sizeof(struct ethhdr);
	__u64 diff = rewrite_diff(from, to, v6);

	if (v6) {
		struct ipv6hdr *ip = l3;

		if ((void *)(ip + 1) > end)
			return false;
		addr_to_v6(&ip->saddr, &to->src);
		addr_to_v6(&ip->daddr, &to->dst);
		return rewrite_l4(ip + 1, end, from, to, diff, p->len - sizeof(*ip));
	}
	struct iphdr *ip = l3;

	if ((void *)(ip + 1) > end)
		return false;
	ip->saddr = addr_to_v4(&to->src);
	ip->daddr = addr_to_v4(&to->dst);
	ip->check = csum_apply(ip->check, diff);
	return rewrite_l4(ip + 1, end, from, to, diff, p->len - sizeof(*ip));
}

#endif
