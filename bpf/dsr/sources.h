/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The source ranges of frontends, checked at the backend's node too, because a packet
 * may bypass the load balancers. Rate limits are enforced only by the load balancers:
 * no node sees all packets of a frontend.
 */
#ifndef FAIRLEAD_DSR_SOURCES_H
#define FAIRLEAD_DSR_SOURCES_H

#include "common.h"
#include "maps.h"

enum source_list {
	SOURCE_ALLOW = 1,
	SOURCE_DENY = 2,
	SOURCE_V6 = 4, /* ::/0 contains no IPv4 address */
} __attribute__((packed));

/* All ranges are in one trie: the key starts with the frontend and the list. Port 0
 * stands for a port range, protocol 0 for every protocol.
 */
struct source_key {
	__u32 prefixlen; /* in bits, including the 160 before the client's address */
	struct addr vip;
	__be16 port;
	__u8 proto;
	enum source_list list;
	struct addr client;
};

/* Only frontends with source ranges are here. Such a frontend has, in the allow list,
 * an entry for all addresses of each family, which is the rule for clients in no
 * range.
 */
enum source_rule {
	SOURCE_NONE, /* the frontend has no ranges */
	SOURCE_OUT,
	SOURCE_IN,
	SOURCE_IN_BUT, /* unless it is in the deny list */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct source_key);
	__type(value, enum source_rule);
} source_ranges SEC(".maps");

/* Whether there are any. Set by the agent. */
volatile __u32 sources_limited = 0;

static __always_inline enum source_rule find_rule(struct source_key *k)
{
	enum source_rule *rule = bpf_map_lookup_elem(&source_ranges, k);

	if (!rule)
		return SOURCE_NONE;
	if (*rule != SOURCE_IN_BUT)
		return *rule;
	k->list ^= SOURCE_ALLOW | SOURCE_DENY;
	return bpf_map_lookup_elem(&source_ranges, k) ? SOURCE_OUT : SOURCE_IN;
}

/* Reports whether a client is outside the source ranges of its packet's frontend. */
__noinline bool source_denied(const struct tuple *t, const struct endpoint *vip,
			      const struct local_vip *row)
{
	struct source_key k = {.prefixlen = (sizeof(k) - sizeof(k.prefixlen)) * 8};
	enum source_rule rule;

	if (!t || !vip || !row)
		return true;
	k.vip = vip->addr;
	k.port = row->last ? 0 : vip->port;
	k.proto = t->proto;
	k.list = SOURCE_ALLOW | (addr_is_v4(&t->src) ? 0 : SOURCE_V6);
	k.client = t->src;
	rule = find_rule(&k);
	if (rule == SOURCE_NONE && row->last) {
		k.proto = 0;
		rule = find_rule(&k);
	}
	return rule == SOURCE_OUT;
}

#endif
