/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections to services that another proxy translates: those made through
 * kube-proxy's rules before this program was attached. Connection tracking matches
 * them by the client's packets and continues them even after the rules are removed.
 * It never sees connections of this program with the service's address.
 */
#ifndef FAIRLEAD_PROXY_CONNTRACK_COMPAT_H
#define FAIRLEAD_PROXY_CONNTRACK_COMPAT_H

#include "proxy/scratch.h"

/* net/netfilter/nf_conntrack_bpf.c, as of Linux 6.1. Later versions accept it too. */
struct bpf_ct_opts {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

/* None of it is read, but the loader does not accept an incomplete type. */
struct nf_conn {
	long unread;
};

/* Whether the kernel supports it: without connection tracking when the program is
 * loaded, there are no earlier connections either. On Linux 6.1 a program cannot
 * itself detect functions in modules.
 */
volatile const bool has_conntrack = false;

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
					 __u32 tuple__sz, struct bpf_ct_opts *opts,
					 __u32 opts__sz) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *ct) __ksym __weak;

static __noinline bool is_foreign(struct __sk_buff *skb, const struct scratch *s)
{
	struct bpf_ct_opts opts = {.netns_id = BPF_F_CURRENT_NETNS, .l4proto = IPPROTO_TCP};
	const struct tuple *t = &s->view.t;
	struct bpf_sock_tuple tuple = {};
	__u32 bytes = sizeof(tuple.ipv6);
	struct nf_conn *ct;

	if (!has_conntrack)
		return false;
	if (s->view.v6) {
		__builtin_memcpy(tuple.ipv6.saddr, &t->src, sizeof(tuple.ipv6.saddr));
		__builtin_memcpy(tuple.ipv6.daddr, &t->dst, sizeof(tuple.ipv6.daddr));
		tuple.ipv6.sport = t->sport;
		tuple.ipv6.dport = t->dport;
	} else {
		tuple.ipv4.saddr = addr_to_v4(&t->src);
		tuple.ipv4.daddr = addr_to_v4(&t->dst);
		tuple.ipv4.sport = t->sport;
		tuple.ipv4.dport = t->dport;
		bytes = sizeof(tuple.ipv4);
	}
	ct = bpf_skb_ct_lookup(skb, &tuple, bytes, &opts, sizeof(opts));
	if (!ct)
		return false;
	bpf_ct_release(ct);
	return true;
}

#endif
