/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Transmission by the kernel's routes and neighbors, bypassing its firewall and
 * source checks.
 */
#ifndef FAIRLEAD_SKB_FIB_REDIRECT_H
#define FAIRLEAD_SKB_FIB_REDIRECT_H

#include "common.h"
#include "read.h"

/* The result of bpf_fib_lookup. */
struct way {
	__u32 ifindex;
	__u32 mtu; /* of the route, if the packet exceeds it */
	struct bpf_redir_neigh next;
};

#define ANY_LENGTH 1 /* fits every route */

/* Looks up the route from src to dst. Returns 0, BPF_FIB_LKUP_RET_* or an error. An
 * unresolved neighbor is fine: sending resolves it. bytes is the longest packet in
 * the frame, which must fit the route; 0: the kernel checks only the device's MTU.
 */
static __always_inline long find_way(struct __sk_buff *skb, const struct view *v,
				     const struct addr *src, const struct addr *dst, __u16 bytes,
				     struct way *way)
{
	struct bpf_fib_lookup fib = {
		.ifindex = skb->ifindex,
		.family = v->v6 ? AF_INET6 : AF_INET,
	};
	long err;

	if (v->v6) {
		__builtin_memcpy(fib.ipv6_src, src, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, dst, sizeof(fib.ipv6_dst));
		fib.flowinfo = bpf_htonl(v->tos << 20) & bpf_htonl(0x0fffffff);
	} else {
		fib.ipv4_src = addr_to_v4(src);
		fib.ipv4_dst = addr_to_v4(dst);
		fib.tos = v->tos;
	}
	fib.tot_len = bytes;
	fib.l4_protocol = v->t.proto;
	fib.sport = v->t.sport;
	fib.dport = v->t.dport;
	err = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	way->mtu = fib.mtu_result;
	if (err != BPF_FIB_LKUP_RET_SUCCESS && err != BPF_FIB_LKUP_RET_NO_NEIGH)
		return err;
	way->ifindex = fib.ifindex;
	way->next.nh_family = fib.family; /* may be IPv6 for an IPv4 route */
	__builtin_memcpy(way->next.ipv6_nh, fib.ipv6_dst, sizeof(way->next.ipv6_nh));
	return 0;
}

static __always_inline long take_way(struct way *way)
{
	return bpf_redirect_neigh(way->ifindex, &way->next, sizeof(way->next), 0);
}

#endif
