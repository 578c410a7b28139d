/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors from routers that are in no slice. Path MTU discovery (RFC 1191, RFC
 * 8201) needs them, and nobody can list all routers: so an error passes if it quotes
 * a packet that its receiver may send. This is stateless: anyone who guesses such a
 * packet can forge an error, as anywhere else.
 *
 * Quotes that a router need not send, or that could hide another error, do not pass:
 * those without eight bytes of transport header, with options or extension headers,
 * of later fragments, and of ICMP other than echo (RFC 1122, 3.2.2; RFC 4443, 2.4).
 */
#ifndef FAIRLEAD_VDN_ERROR_H
#define FAIRLEAD_VDN_ERROR_H

#include "icmp.h"
#include "maps.h"
#include "parse.h"

struct error4 {
	__u8 type, code;
	__be16 check;
	__be32 rest;
	struct iphdr ip;
	__u8 transport[8];
};

struct error6 {
	__u8 type, code;
	__be16 check;
	__be32 rest;
	struct ipv6hdr ip;
	__u8 transport[8];
};

/* Source and destination of the quoted packet. The error is for the source. */
struct quote {
	struct addr src, dst;
};

static __always_inline bool is_extension(__u8 next)
{
	switch (next) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_DSTOPTS:
	case IPPROTO_AH:
	case IPPROTO_MH:
	case 139: /* HIP, RFC 7401 */
	case 140: /* Shim6, RFC 5533 */
		return true;
	}
	return false;
}

/* Reads the quote of an IPv4 error, whose source must be the error's destination. */
static __always_inline bool quote_of_v4(struct __sk_buff *skb, struct quote *q)
{
	struct error4 e;
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip)) || ip.version != 4 ||
	    ip.ihl < 5 || ip.protocol != IPPROTO_ICMP || ipv4_is_fragment(&ip) ||
	    bpf_ntohs(ip.tot_len) < ip.ihl * 4 + sizeof(e) ||
	    bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + ip.ihl * 4, &e, sizeof(e)))
		return false;
	if (!is_error(e.type, false) || e.ip.version != 4 || e.ip.ihl != 5 ||
	    e.ip.frag_off & bpf_htons(0x1fff) || e.ip.saddr != ip.daddr ||
	    (e.ip.protocol == IPPROTO_ICMP && e.transport[0] != 0 && e.transport[0] != 8))
		return false;
	addr_from_v4(&q->src, e.ip.saddr);
	addr_from_v4(&q->dst, e.ip.daddr);
	return true;
}

static __always_inline bool quote_of_v6(struct __sk_buff *skb, struct quote *q)
{
	struct ipv6hdr ip;
	struct error6 e;
	struct addr to;

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip)) || ip.version != 6 ||
	    ip.nexthdr != IPPROTO_ICMPV6 || bpf_ntohs(ip.payload_len) < sizeof(e) ||
	    bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + sizeof(ip), &e, sizeof(e)))
		return false;
	if (!is_error(e.type, true) || e.ip.version != 6 || is_extension(e.ip.nexthdr) ||
	    (e.ip.nexthdr == IPPROTO_ICMPV6 && e.transport[0] != 128 && e.transport[0] != 129))
		return false;
	addr_from_v6(&to, &ip.daddr);
	addr_from_v6(&q->src, &e.ip.saddr);
	addr_from_v6(&q->dst, &e.ip.daddr);
	return addr_equal(&q->src, &to) && !addrs_are_mapped(&to, &q->dst);
}

/* Reports whether it is an error, and reads its quote. */
static __noinline bool read_quote(struct __sk_buff *skb, struct quote *q)
{
	__be16 proto = 0;

	bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &proto, sizeof(proto));
	switch (proto) {
	case bpf_htons(ETH_P_IP):
		return quote_of_v4(skb, q);
	case bpf_htons(ETH_P_IPV6):
		return quote_of_v6(skb, q);
	}
	return false;
}

#endif
