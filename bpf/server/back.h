/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The way back: what the server answers gets the VIP as its source and goes
 * straight to the client.
 */
#ifndef FAIRLEAD_SERVER_BACK_H
#define FAIRLEAD_SERVER_BACK_H

#include "common.h"
#include "maps.h"
#include "out.h"
#include "read.h"
#include "rewrite.h"

/* Off for networks that carry longer packets to the servers than the servers'
 * own devices do.
 */
volatile const bool clamp_mss = true;

#define TCP_OPT_END 0
#define TCP_OPT_NOP 1
#define TCP_OPT_MSS 2
#define TCP_OPT_MSS_LEN 4
#define TCP_OPTS_MAX 40
/* What no clamping goes below: RFC 9293, 3.7.1 for IPv4. */
#define MSS_MIN 536

/* Where in the TCP header the MSS is, or 0. Only even places, where a 16-bit
 * word of the checksum begins: every stack puts the option first.
 */
static __always_inline __u32 find_mss(struct __sk_buff *skb, const struct view *v, __u8 doff)
{
	__u32 at = sizeof(struct tcphdr), end = doff * 4;
	__u8 opt[2];

	for (int i = 0; i < 8; i++) {
		if (at + TCP_OPT_MSS_LEN > end || at > sizeof(struct tcphdr) + TCP_OPTS_MAX ||
		    bpf_skb_load_bytes(skb, v->l4 + at, opt, sizeof(opt)))
			return 0;
		if (opt[0] == TCP_OPT_MSS && opt[1] == TCP_OPT_MSS_LEN)
			return at & 1 ? 0 : at + 2;
		if (opt[0] == TCP_OPT_END)
			return 0;
		if (opt[0] == TCP_OPT_NOP)
			at++;
		else if (opt[1] < 2)
			return 0;
		else
			at += opt[1];
	}
	return 0;
}

/* A SYN-ACK tells the client how long its segments may be: shorter by what the
 * balancer adds, so that its packets fit the way to the server.
 */
static __always_inline long rewrite_mss(struct __sk_buff *skb, const struct view *v, __u8 overhead)
{
	struct tcphdr tcp;
	__be16 old, new;
	__u32 at;
	long err = bpf_skb_load_bytes(skb, v->l4, &tcp, sizeof(tcp));

	if (err || !tcp.syn || !tcp.ack)
		return err;
	at = find_mss(skb, v, tcp.doff);
	if (!at || bpf_skb_load_bytes(skb, v->l4 + at, &old, sizeof(old)) ||
	    bpf_ntohs(old) < MSS_MIN + overhead)
		return 0;
	new = bpf_htons(bpf_ntohs(old) - overhead);
	return bpf_l4_csum_replace(skb, l4_check_offset(v), old, new, sizeof(new))
		       ?: bpf_skb_store_bytes(skb, v->l4 + at, &new, sizeof(new), 0);
}

/* IPv6 is never fragmented on the way. */
static __always_inline bool may_not_fragment(struct __sk_buff *skb, const struct view *v)
{
	__be16 frag_off = 0;

	if (v->v6)
		return true;
	bpf_skb_load_bytes(skb, v->l3 + offsetof(struct iphdr, frag_off), &frag_off,
			   sizeof(frag_off));
	return frag_off & bpf_htons(0x4000);
}

static __always_inline long restore(struct __sk_buff *skb, const struct view *v,
				    const struct server_flow *f)
{
	long err = rewrite(skb, v, SIDE_SRC, &f->vip, f->vip_port);

	if (!err && clamp_mss && f->overhead && v->p.t.proto == IPPROTO_TCP)
		err = rewrite_mss(skb, v, f->overhead);
	return err;
}

/* An answer that leaves by routing here, past the kernel. What the kernel must
 * tell the server about (too long, too many hops) it tells the server: such a
 * packet goes to it as it is.
 */
static __always_inline int restore_routed(struct __sk_buff *skb, const struct view *v,
					  const struct server_flow *f)
{
	struct way way = {};
	long none = find_way(skb, v, &f->vip, &v->p.t.dst, &way);

	if (none == BPF_FIB_LKUP_RET_FRAG_NEEDED && may_not_fragment(skb, v)) {
		count(SERVER_COUNTER_PASSED_TOO_BIG);
		return TC_ACT_UNSPEC;
	}
	if (v->p.ttl <= 1) {
		count(SERVER_COUNTER_PASSED_TTL);
		return TC_ACT_UNSPEC;
	}
	if (restore(skb, v, f) || (!none && rewrite_ttl(skb, v))) {
		count(SERVER_COUNTER_DROPPED_REWRITE);
		return TC_ACT_SHOT;
	}
	if (none) {
		count(SERVER_COUNTER_RESTORED_PASSED);
		return TC_ACT_UNSPEC;
	}
	count(SERVER_COUNTER_RESTORED_STRAIGHT);
	return take_way(&way);
}

/* An answer of the node itself, which its kernel has routed already. */
static __always_inline int restore_own(struct __sk_buff *skb, const struct view *v,
				       const struct server_flow *f)
{
	if (restore(skb, v, f)) {
		count(SERVER_COUNTER_DROPPED_REWRITE);
		return TC_ACT_SHOT;
	}
	count(SERVER_COUNTER_RESTORED_STRAIGHT);
	return TC_ACT_UNSPEC;
}

static __always_inline int back(struct __sk_buff *skb, enum server_place place)
{
	struct view v;
	struct cursor c;
	struct tuple flow = {};
	struct server_flow *f;
	enum kind kind;

	read_begin(skb, &c);
	kind = read_outer(skb, &c, &v);
	if (kind != KIND_TRANSPORT || v.has_option) {
		if (kind == KIND_FRAGMENT)
			count(SERVER_COUNTER_PASSED_FRAGMENT);
		return TC_ACT_UNSPEC;
	}
	flow.src = v.p.t.dst;
	flow.dst = v.p.t.src;
	flow.sport = v.p.t.dport;
	flow.dport = v.p.t.sport;
	flow.proto = v.p.t.proto;
	f = bpf_map_lookup_elem(&server_flows, &flow);
	if (!f)
		return TC_ACT_UNSPEC;
	return place == SERVER_PLACE_POD ? restore_routed(skb, &v, f) : restore_own(skb, &v, f);
}

#endif
