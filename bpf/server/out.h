/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Leaving by the kernel's routes, past its firewall and its source checks,
 * which would find a VIP that is not theirs.
 */
#ifndef FAIRLEAD_SERVER_OUT_H
#define FAIRLEAD_SERVER_OUT_H

#include "common.h"
#include "maps.h"
#include "read.h"

/* Where bpf_fib_lookup said to go. */
struct way {
	__u32 ifindex;
	struct bpf_redir_neigh next;
};

/* Asks for the route from src to dst. Gives 0, BPF_FIB_LKUP_RET_* or an error;
 * a neighbour that is yet to be asked for its MAC address is good: sending
 * does that.
 */
static __always_inline long find_way(struct __sk_buff *skb, const struct view *v,
				     const struct addr *src, const struct addr *dst,
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
	fib.l4_protocol = v->t.proto;
	fib.sport = v->t.sport;
	fib.dport = v->t.dport;
	err = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
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

/* Sends a packet, whose destination is already the next server, there. A
 * host that forwards nothing has no answer in its tables for a packet that
 * came in; then it goes out where it came from.
 */
static __noinline int send_to_second(struct __sk_buff *skb, const struct view *v,
				     const struct addr *to)
{
	struct way way = {};
	long err = find_way(skb, v, &v->t.src, to, &way);

	if (err == BPF_FIB_LKUP_RET_FWD_DISABLED) {
		count(SERVER_COUNTER_SECOND_CHANCE);
		return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
	}
	if (err) {
		count(SERVER_COUNTER_DROPPED_NO_WAY_TO_SECOND);
		return TC_ACT_SHOT;
	}
	count(SERVER_COUNTER_SECOND_CHANCE);
	return take_way(&way);
}

#endif
