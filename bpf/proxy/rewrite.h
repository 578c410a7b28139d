/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rewrites a packet's addresses and ports according to its flow's entry. */
#ifndef FAIRLEAD_PROXY_REWRITE_H
#define FAIRLEAD_PROXY_REWRITE_H

#include "crc32c.h"
#include "proxy/flow.h"
#include "skb/rewrite.h"

#define SCTP_CHECKSUM_AT offsetof(struct sctphdr, checksum)

/* SCTP's checksum covers the ports but no address. If it is still to be filled in
 * (from a local sender), the kernel ignores its current value.
 */
static __noinline long change_sctp_ports(struct __sk_buff *skb, const struct view *v,
					 const struct packet_flow *f)
{
	__be16 ports[2] = {f->sport, f->dport};
	__u32 bits = (v->t.sport ^ f->sport) | (__u32)(v->t.dport ^ f->dport) << 16;
	__u32 checksum;

	if (!bits)
		return 0;
	if (bpf_skb_load_bytes(skb, v->l4 + SCTP_CHECKSUM_AT, &checksum, sizeof(checksum)))
		return -1;
	checksum ^= crc32c_change(bits, v->room);
	if (bpf_skb_store_bytes(skb, v->l4, ports, sizeof(ports), BPF_F_RECOMPUTE_CSUM))
		return -1;
	return bpf_skb_store_bytes(skb, v->l4 + SCTP_CHECKSUM_AT, &checksum, sizeof(checksum),
				   BPF_F_RECOMPUTE_CSUM);
}

/* Returns 0, or an error after which the packet must be dropped. Not static, so that
 * it is verified once.
 */
__noinline long change(struct __sk_buff *skb, const struct view *v, const struct packet_flow *f)
{
	__be16 sport, dport;
	bool sctp;

	if (!v || !f)
		return -1;
	sctp = v->t.proto == IPPROTO_SCTP;
	sport = sctp ? v->t.sport : f->sport;
	dport = sctp ? v->t.dport : f->dport;
	if (sport != v->t.sport || !addr_equal(&f->src, &v->t.src))
		if (rewrite(skb, v, SIDE_SRC, &f->src, sport))
			return -1;
	if (dport != v->t.dport || !addr_equal(&f->dst, &v->t.dst))
		if (rewrite(skb, v, SIDE_DST, &f->dst, dport))
			return -1;
	return sctp ? change_sctp_ports(skb, v, f) : 0;
}

/* Rewrites only the addresses, for a packet without ports. */
static __noinline long change_addrs(struct __sk_buff *skb, const struct view *v, enum kind kind,
				    const struct addr *src, const struct addr *dst)
{
	return rewrite_addr(skb, v, kind, SIDE_SRC, src)
		       ?: rewrite_addr(skb, v, kind, SIDE_DST, dst);
}

#endif
