/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The authentication tag of packets between nodes, for networks where a sender can
 * spoof another's address. It is at the end of the list that a packet carries
 * (option.h). Its first byte is the key's id, the other seven are the first bytes of
 * a SipHash-2-4 (siphash.h) over
 *
 *   the list's place and number of endpoints, the packet's protocol, the families of the
 *   outer header (bit 0: IPv6) and of the packet (bit 1), its ports
 *   the addresses of the outer header; or the VIP and port at the start of the list
 *   the packet's own addresses
 *   the other endpoints of the list, zero-padded to a whole word
 *
 * all in network order. Ports and protocol are zero if the packet has options,
 * extension headers or fragments, or is not TCP, UDP or SCTP. A tag does not cover
 * its time or the packet's content: anyone who sees a packet can replay it.
 *
 * With auth_policy AUTH_OFF the verifier removes all of this from the program.
 */
#ifndef FAIRLEAD_AUTH_H
#define FAIRLEAD_AUTH_H

#include "addr.h"
#include "common.h"
#include "option.h"
#include "parse.h"
#include "siphash.h"

/* Set before loading. */
enum auth_rule {
	AUTH_OFF,
	AUTH_ACCEPT,  /* send tags; accept packets with none or an invalid one */
	AUTH_REQUIRE, /* send tags; drop such packets */
} __attribute__((packed));

volatile const enum auth_rule auth_policy = AUTH_OFF;

#define AUTH_KEYS 2

struct auth_key {
	__u64 k0, k1;
};

/* The first key makes tags. All are accepted. */
struct auth_keys {
	struct auth_key key[AUTH_KEYS];
	__u8 id[AUTH_KEYS]; /* the tag's first byte */
	__u8 n;
	__u8 zero[5];
};

/* The agent writes the next keys to a set that no packet reads, and then switches to
 * it: no packet sees a partial key.
 */
#define AUTH_KEY_SETS 4

struct auth_keys auth_key_sets[AUTH_KEY_SETS] SEC(".data.auth") = {};
volatile __u32 auth_keys_at SEC(".data.auth") = 0;

enum auth_place {
	AUTH_OUTER = 1, /* an option of the outer header */
	AUTH_GUE = 2,	/* GUE's private data */
	AUTH_OWN = 3,	/* an option of the packet's own header */
};

#define AUTH_LIST_MAX (ENDPOINTS_MAX * ENDPOINT6_SIZE)
#define AUTH_WORDS 26
#define AUTH_FRONT 192

/* What a tag covers, and memory to build the headers that carry it. */
struct auth_scratch {
	struct tuple inner __attribute__((aligned(8)));
	struct endpoint vip;
	__u64 tag;   /* of a received packet, ... */
	bool tagged; /* ... if it had one */
	__u32 n;     /* of word */
	__u64 word[AUTH_WORDS];
	__u8 list[128] __attribute__((aligned(8)));
	__u8 front[AUTH_FRONT] __attribute__((aligned(8)));
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct auth_scratch));
} auth_scratch SEC(".maps");

static __always_inline struct auth_scratch *auth_scratch_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&auth_scratch, &zero);
}

/* Reads 4-byte words: an address or a list may be aligned to only four bytes. */
static __always_inline __u64 auth_pair(const __be32 *w)
{
	return (__u64)w[0] | (__u64)w[1] << 32;
}

static __always_inline void auth_put(struct auth_scratch *s, __u64 word)
{
	__u32 at = s->n;

	if (at >= AUTH_WORDS)
		return;
	s->word[at] = word;
	s->n = at + 1;
}

static __always_inline void auth_put_addrs(struct auth_scratch *s, const struct addr *src,
					   const struct addr *dst, bool v6)
{
	if (!v6) {
		auth_put(s, (__u64)src->word[3] | (__u64)dst->word[3] << 32);
		return;
	}
	auth_put(s, auth_pair(&src->word[0]));
	auth_put(s, auth_pair(&src->word[2]));
	auth_put(s, auth_pair(&dst->word[0]));
	auth_put(s, auth_pair(&dst->word[2]));
}

static __always_inline void auth_put_vip(struct auth_scratch *s, bool v6)
{
	const struct endpoint *vip = &s->vip;

	if (!v6) {
		auth_put(s, (__u64)vip->addr.word[3] | (__u64)vip->port << 32);
		return;
	}
	auth_put(s, auth_pair(&vip->addr.word[0]));
	auth_put(s, auth_pair(&vip->addr.word[2]));
	auth_put(s, vip->port);
}

/* Adds bytes of s->list. The rest of it may be anything. */
static __always_inline void auth_put_list(struct auth_scratch *s, __u32 bytes)
{
	for (__u32 i = 0; i < sizeof(s->list) / 8; i++) {
		__u32 left = bytes - i * 8;
		__u64 word;

		if (i * 8 >= bytes)
			break;
		word = ((const __u64 *)s->list)[i];
		auth_put(s, left >= 8 ? word : word & ((1ULL << left * 8) - 1));
	}
}

/* Collects everything that a tag covers: s->inner and n endpoints in s->list. src and
 * dst are the outer header's. A packet without one uses s->vip.
 */
__noinline int auth_cover(const struct addr *src, const struct addr *dst, enum auth_place place,
			  __u32 n)
{
	struct auth_scratch *s = auth_scratch_get();
	__u32 listed = place == AUTH_OWN ? n - 1 : n;
	bool outer6, inner6;

	if (!s || !src || !dst)
		return -1;
	outer6 = !addr_is_v4(dst);
	inner6 = !addr_is_v4(&s->inner.dst);
	s->n = 0;
	auth_put(s, (__u64)s->inner.dport << 48 | (__u64)s->inner.sport << 32 |
			    (__u32)(outer6 | inner6 << 1) << 24 | (__u32)s->inner.proto << 16 |
			    (n & 0xff) << 8 | place);
	if (place == AUTH_OWN)
		auth_put_vip(s, inner6);
	else
		auth_put_addrs(s, src, dst, outer6);
	auth_put_addrs(s, &s->inner.src, &s->inner.dst, inner6);
	if (listed < ENDPOINTS_MAX)
		auth_put_list(s, listed * ENDPOINT_SIZE(place == AUTH_OWN ? inner6 : outer6));
	return 0;
}

static __always_inline const struct auth_keys *auth_keys_of(__u32 set)
{
	return &auth_key_sets[set & (AUTH_KEY_SETS - 1)];
}

/* Returns the tag of what auth_cover has collected, with one key of a set. */
__noinline __u64 auth_tag(__u32 set, __u32 which)
{
	struct auth_scratch *s = auth_scratch_get();
	const struct auth_keys *keys = auth_keys_of(set);
	struct sip sip;
	__u32 n;

	which &= AUTH_KEYS - 1;
	if (!s)
		return 0;
	n = s->n;
	sip_begin(&sip, keys->key[which].k0, keys->key[which].k1);
	for (__u32 i = 0; i < AUTH_WORDS; i++) {
		if (i >= n)
			break;
		sip_word(&sip, s->word[i]);
	}
	return sip_end(&sip, n) << 8 | keys->id[which];
}

/* Reports whether a tag matches what auth_cover has collected, with any accepted key.
 * Reads auth_keys_at only once: if the keys change places in between, both searches
 * could miss the right one.
 */
__noinline bool auth_is_right(__u64 tag)
{
	__u32 set = auth_keys_at;
	const struct auth_keys *keys = auth_keys_of(set);

	for (__u32 i = 0; i < AUTH_KEYS; i++) {
		if (i < keys->n && keys->id[i] == (__u8)tag && auth_tag(set, i) == tag)
			return true;
	}
	return false;
}

#endif
