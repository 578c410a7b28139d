/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Neighbor protocols that IP needs: ARP (RFC 826), neighbor discovery (RFC 4861) and
 * its reports (MLD, RFC 3810). They use group and source addresses that are in no
 * slice, and claim ownership of addresses, so each has its own rules.
 */
#ifndef FAIRLEAD_VDN_NEIGHBOR_H
#define FAIRLEAD_VDN_NEIGHBOR_H

#include "addr.h"
#include "common.h"

/* ARP for Ethernet and IPv4. No uapi header defines the addresses. */
struct arp4 {
	__be16 hardware, protocol;
	__u8 hardware_bytes, protocol_bytes;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__u8 sender[4];
	__u8 target_mac[ETH_ALEN];
	__u8 target[4];
};

static __always_inline bool arp_is_plain(const struct arp4 *a)
{
	return a->hardware == bpf_htons(1) && a->protocol == bpf_htons(ETH_P_IP) &&
	       a->hardware_bytes == ETH_ALEN && a->protocol_bytes == 4;
}

static __always_inline void addr_from_bytes(struct addr *a, const __u8 *v4)
{
	__be32 word;

	__builtin_memcpy(&word, v4, sizeof(word));
	addr_from_v4(a, word);
}

/* ICMPv6 types. */
enum {
	ND_ROUTER_SOLICIT = 133,
	ND_ROUTER_ADVERT = 134,
	ND_SOLICIT = 135,
	ND_ADVERT = 136,
	ND_REDIRECT = 137,
	MLD_REPORT = 143,
};

/* An IPv6 packet of neighbor discovery, as far as needed. */
struct nd {
	struct ipv6hdr ip;
	__u8 type, code;
	__be16 checksum;
	__be32 flags;
	struct in6_addr target;
};

/* Its first option: the sender's link-layer address. */
struct nd_option {
	__u8 type, units;
	__u8 mac[ETH_ALEN];
};

#define ND_BEFORE_TARGET offsetof(struct nd, target)

/* ND is valid only with hop limit 255 (RFC 4861, 6.1 and 7.1). */
static __always_inline bool is_nd(const struct nd *nd)
{
	return nd->ip.nexthdr == IPPROTO_ICMPV6 && nd->ip.hop_limit == 255 &&
	       nd->type >= ND_ROUTER_SOLICIT && nd->type <= ND_REDIRECT;
}

/* Reports a header before it that the checks would have to skip. Nobody needs that,
 * but it is used to evade checks (RFC 6980, RFC 7113).
 */
static __always_inline bool hides_nd(const struct ipv6hdr *ip)
{
	return ip->hop_limit == 255 &&
	       (ip->nexthdr == IPPROTO_HOPOPTS || ip->nexthdr == IPPROTO_ROUTING ||
		ip->nexthdr == IPPROTO_FRAGMENT || ip->nexthdr == IPPROTO_DSTOPTS);
}

/* Reports whether it is an MLD report: hop limit 1, to ff02::16, after one header
 * with the router alert (RFC 3810, 5 and 5.2).
 */
static __always_inline bool is_mld(struct __sk_buff *skb, const struct ipv6hdr *ip)
{
	const __be32 *to = ip->daddr.in6_u.u6_addr32;
	struct {
		__u8 next, units, alert[6], type;
	} report;

	return ip->nexthdr == IPPROTO_HOPOPTS && ip->hop_limit == 1 &&
	       to[0] == bpf_htonl(0xff020000) && !to[1] && !to[2] && to[3] == bpf_htonl(0x16) &&
	       !bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + sizeof(*ip), &report,
				   sizeof(report)) &&
	       report.next == IPPROTO_ICMPV6 && !report.units && report.type == MLD_REPORT;
}

static __always_inline bool is_link_local(const struct addr *a)
{
	return (a->word[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* To neighbors on the link: ff02::/16. */
static __always_inline bool is_link_group(const struct addr *a)
{
	return (a->word[0] & bpf_htonl(0xffff0000)) == bpf_htonl(0xff020000);
}

/* The link-local address that a device derives from its MAC address (RFC 4291,
 * appendix A).
 */
static __always_inline bool is_eui64(const struct addr *a, const volatile __u8 *mac)
{
	return a->word[0] == bpf_htonl(0xfe800000) && !a->word[1] &&
	       a->word[2] == bpf_htonl((mac[0] ^ 2) << 24 | mac[1] << 16 | mac[2] << 8 | 0xff) &&
	       a->word[3] == bpf_htonl(0xfeu << 24 | mac[3] << 16 | mac[4] << 8 | mac[5]);
}

#endif
