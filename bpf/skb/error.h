/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors (RFC 792, RFC 4443): they contain at least the beginning of the packet
 * that they are about, which identifies the flow.
 */
#ifndef FAIRLEAD_SKB_ERROR_H
#define FAIRLEAD_SKB_ERROR_H

#include "common.h"
#include "csum.h"
#include "icmp.h"
#include "option.h"
#include "read.h"
#include "rewrite.h"

/* The packet that an ICMP error quotes. Only the ports of its transport header may be
 * present.
 */
struct embedded {
	struct tuple t;
	__u32 l3, l4;
	__u32 room; /* bytes from l4 on */
	bool v6;
} __attribute__((aligned(8)));

static __always_inline bool read_embedded_v4(struct __sk_buff *skb, struct embedded *e)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, e->l3, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5 ||
	    ip.frag_off & bpf_htons(0x1fff))
		return false;
	addr_from_v4_aligned(&e->t.src, ip.saddr);
	addr_from_v4_aligned(&e->t.dst, ip.daddr);
	e->t.proto = ip.protocol;
	e->l4 = e->l3 + ip.ihl * 4;
	return true;
}

static __always_inline bool read_embedded_v6(struct __sk_buff *skb, struct embedded *e)
{
	struct ipv6hdr ip;
	__u8 head[4];

	if (bpf_skb_load_bytes(skb, e->l3, &ip, sizeof(ip)) || ip.version != 6)
		return false;
	addr_from_v6(&e->t.src, &ip.saddr);
	addr_from_v6(&e->t.dst, &ip.daddr);
	e->t.proto = ip.nexthdr;
	e->l4 = e->l3 + sizeof(ip);
	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		if (e->t.proto != IPPROTO_HOPOPTS && e->t.proto != IPPROTO_DSTOPTS &&
		    e->t.proto != IPPROTO_ROUTING && e->t.proto != IPPROTO_FRAGMENT)
			return true;
		if (bpf_skb_load_bytes(skb, e->l4, head, sizeof(head)) ||
		    (e->t.proto == IPPROTO_FRAGMENT && (head[2] || head[3] & 0xf8)))
			return false;
		e->l4 += e->t.proto == IPPROTO_FRAGMENT ? 8 : 8 + head[1] * 8;
		e->t.proto = head[0];
	}
	return true;
}

/* Reads the packet quoted by the ICMP packet at v. Returns false if it is no error,
 * or quotes nothing with ports.
 */
__noinline bool read_embedded(struct __sk_buff *skb, const struct view *v, struct embedded *e)
{
	__be16 ports[2];
	__u8 type;

	if (!v || !e)
		return false;
	__builtin_memset(e, 0, sizeof(*e));
	if (bpf_skb_load_bytes(skb, v->l4, &type, sizeof(type)) || !is_error(type, v->v6))
		return false;
	e->v6 = v->v6;
	e->l3 = v->l4 + ICMP_HEAD;
	if (!(e->v6 ? read_embedded_v6(skb, e) : read_embedded_v4(skb, e)))
		return false;
	if (e->t.proto != IPPROTO_TCP && e->t.proto != IPPROTO_UDP && e->t.proto != IPPROTO_SCTP)
		return false;
	if (bpf_skb_load_bytes(skb, e->l4, ports, sizeof(ports)))
		return false;
	e->t.sport = ports[0];
	e->t.dport = ports[1];
	e->room = skb->len - e->l4;
	return true;
}

/* Replaces one address of the embedded header and adds the change of the ICMP
 * checksum to diff.
 */
static __always_inline long translate_addr(struct __sk_buff *skb, const struct embedded *e,
					   enum side side, const struct addr *to, __u64 *diff)
{
	const struct addr *from = side == SIDE_SRC ? &e->t.src : &e->t.dst;
	__u32 at = e->l3 + offsetof(struct iphdr, check);
	struct ipv4_tail tail;
	__sum16 check;

	*diff = csum_diff_addr(*diff, from, to, true);
	if (e->v6)
		return bpf_skb_store_bytes(skb,
					   e->l3 + (side == SIDE_SRC
							    ? offsetof(struct ipv6hdr, saddr)
							    : offsetof(struct ipv6hdr, daddr)),
					   to, sizeof(*to), 0);
	if (bpf_skb_load_bytes(skb, at, &tail, sizeof(tail)))
		return -1;
	check = csum_apply(tail.check, csum_diff4(0, addr_to_v4(from), addr_to_v4(to)));
	*diff = csum_diff2(*diff, tail.check, check);
	tail.check = check;
	if (side == SIDE_SRC)
		tail.saddr = addr_to_v4(to);
	else
		tail.daddr = addr_to_v4(to);
	return bpf_skb_store_bytes(skb, at, &tail, sizeof(tail), 0);
}

/* Updates the embedded transport checksum if it is present. */
static __always_inline long translate_check(struct __sk_buff *skb, const struct embedded *e,
					    __u64 change, __u64 *diff)
{
	bool udp = e->t.proto == IPPROTO_UDP;
	__u32 at = udp ? offsetof(struct udphdr, check) : offsetof(struct tcphdr, check);
	__sum16 old, new;

	if (e->t.proto == IPPROTO_SCTP || e->room < at + sizeof(old))
		return 0;
	if (bpf_skb_load_bytes(skb, e->l4 + at, &old, sizeof(old)))
		return -1;
	new = udp ? csum_apply_udp(old, change) : csum_apply(old, change);
	*diff = csum_diff2(*diff, old, new);
	return bpf_skb_store_bytes(skb, e->l4 + at, &new, sizeof(new), 0);
}

/* Replaces one address and port of the embedded packet and updates every checksum
 * that covers them.
 */
__noinline long translate(struct __sk_buff *skb, const struct view *v, const struct embedded *e,
			  enum side side, const struct endpoint *to)
{
	const struct addr *from;
	__u64 diff = 0, change;
	__be16 from_port;
	__u32 at;
	long err;

	if (!v || !e || !to)
		return -1;
	from = side == SIDE_SRC ? &e->t.src : &e->t.dst;
	from_port = side == SIDE_SRC ? e->t.sport : e->t.dport;
	at = e->l4 + (side == SIDE_SRC ? 0 : sizeof(__be16));
	change = csum_diff_addr(0, from, &to->addr, true);
	err = translate_addr(skb, e, side, &to->addr, &diff);
	change = csum_diff2(change, from_port, to->port);
	diff = csum_diff2(diff, from_port, to->port);
	if (err || translate_check(skb, e, change, &diff) ||
	    bpf_skb_store_bytes(skb, at, &to->port, sizeof(to->port), 0))
		return -1;
	return bpf_l4_csum_replace(skb, v->l4 + ICMP_CHECK, 0, csum_fold(diff), 0);
}

#endif
