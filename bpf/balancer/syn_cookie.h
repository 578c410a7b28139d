/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Cookies: numbers that only their receiver can return, and that any load balancer
 * with the same key can verify statelessly (RFC 4987, 3.6).
 *
 *   31            10 9    7 6     3    2   1    0
 *   authentication    MSS    scale   SACK   slot     of a SYN-ACK
 *
 *   31                  16 15               0
 *   the client's, or one less  authentication        of a challenge
 *
 * The slot is the lowest two bits of a count of 34-second intervals of the wall
 * clock. A cookie is valid in its slot, the next one, and the one before because
 * clocks differ. Authentication is SipHash-2-4 over addresses, ports, kind, slot and
 * all other contents of the cookie.
 *
 * A challenge is an acknowledgment number up to 2^16 below the client's sequence
 * number. The client's TCP rejects it with a RST with that number (RFC 9293,
 * 3.10.7.3), while a firewall's connection tracking in between takes it for an old
 * one and lets it pass.
 */
#ifndef FAIRLEAD_BALANCER_SYN_COOKIE_H
#define FAIRLEAD_BALANCER_SYN_COOKIE_H

#include "parse.h"
#include "siphash.h"
#include "syn_maps.h"

#define SYN_SLOT_SHIFT 35 /* 34.4 s, in ns */
#define SYN_SLOT_MASK 3

#define SYN_OPTIONS_SHIFT 2
#define SYN_OPTIONS_BITS 8
#define SYN_COOKIE_SHIFT (SYN_OPTIONS_SHIFT + SYN_OPTIONS_BITS)
#define SYN_CHALLENGE_MASK 0xffff

/* No scale in a SYN. RFC 7323 allows up to 14. */
#define SYN_NO_SCALE 15
#define SYN_SCALE_MAX 14

/* The segment sizes that a cookie can encode. The client's is rounded down to one of
 * them: the minimum, and common sizes on Ethernet, with and without tunnels, for both
 * families, and with jumbo frames.
 */
#define SYN_SIZES 8
static const __u16 syn_sizes[SYN_SIZES] = {536, 1220, 1300, 1360, 1400, 1440, 1460, 8940};

/* The options of a client's SYN that a cookie must preserve. */
struct syn_options {
	__u16 mss;
	__u8 scale; /* or SYN_NO_SCALE */
	bool sack;
};

static __always_inline __u32 syn_options_pack(const struct syn_options *o)
{
	__u32 size = 0;

#pragma unroll
	for (__u32 i = 1; i < SYN_SIZES; i++)
		size += o->mss >= syn_sizes[i];
	return size << 5 | (__u32)o->scale << 1 | o->sack;
}

static __always_inline void syn_options_unpack(struct syn_options *o, __u32 bits)
{
	__u32 size = bits >> 5 & (SYN_SIZES - 1);

	o->mss = syn_sizes[0];
#pragma unroll
	for (__u32 i = 1; i < SYN_SIZES; i++)
		if (size == i)
			o->mss = syn_sizes[i];
	o->scale = bits >> 1 & 15;
	o->sack = bits & 1;
}

static __always_inline __u32 syn_slot(void)
{
	return (bpf_ktime_get_coarse_ns() + syn_set.wall) >> SYN_SLOT_SHIFT;
}

/* Returns the currently valid slot with these lowest bits, or false if none is valid. */
static __always_inline bool syn_slot_of(__u32 cookie, __u32 *slot)
{
	__u32 now = syn_slot(), ago = (now - cookie) & SYN_SLOT_MASK;

	*slot = ago == 3 ? now + 1 : now - ago;
	return ago != 2;
}

/* Authenticates a cookie with the given key, for the client's direction of a
 * connection. seq is the client's sequence number, 0 for a challenge.
 */
__noinline __u32 syn_authenticate(const struct tuple *t, __u32 seq, __u32 slot, __u32 options,
				  __u32 key)
{
	__u32 zero = 0;
	struct syn_keys *keys = bpf_map_lookup_elem(&syn_keys, &zero);
	const addr_half *src, *dst;
	struct sip s;

	if (!t || !keys || key >= SYN_KEYS)
		return 0;
	src = (const addr_half *)&t->src;
	dst = (const addr_half *)&t->dst;
	sip_begin(&s, keys->key[key].k0, keys->key[key].k1);
	sip_word(&s, src[0]);
	sip_word(&s, src[1]);
	sip_word(&s, dst[0]);
	sip_word(&s, dst[1]);
	sip_word(&s, (__u64)t->sport << 48 | (__u64)t->dport << 32 | seq);
	sip_word(&s, (__u64)slot << 32 | options);
	return sip_end(&s, 6);
}

/* The options value authenticated in a challenge. No SYN-ACK cookie has it. */
#define SYN_CHALLENGE_KIND 0x100

static __always_inline __u32 syn_cookie_make(const struct tuple *t, __u32 seq,
					     const struct syn_options *o)
{
	__u32 slot = syn_slot(), options = syn_options_pack(o);

	return syn_authenticate(t, seq, slot, options, 0) << SYN_COOKIE_SHIFT |
	       options << SYN_OPTIONS_SHIFT | (slot & SYN_SLOT_MASK);
}

static __always_inline __u32 syn_key_count(void)
{
	__u32 zero = 0;
	struct syn_keys *keys = bpf_map_lookup_elem(&syn_keys, &zero);

	return keys ? keys->n : 0;
}

/* Reports whether an ACK returns a SYN-ACK's cookie, made with any key, and decodes
 * the SYN's options.
 */
static __always_inline bool syn_cookie_valid(const struct tuple *t, __u32 seq, __u32 cookie,
					     struct syn_options *o)
{
	__u32 options = cookie >> SYN_OPTIONS_SHIFT & ((1 << SYN_OPTIONS_BITS) - 1);
	__u32 slot, n = syn_key_count();

	if (!syn_slot_of(cookie, &slot))
		return false;
	syn_options_unpack(o, options);
	for (__u32 i = 0; i < SYN_KEYS && i < n; i++)
		if (syn_authenticate(t, seq, slot, options, i) << SYN_COOKIE_SHIFT ==
		    cookie >> SYN_COOKIE_SHIFT << SYN_COOKIE_SHIFT)
			return true;
	return false;
}

static __always_inline __u32 syn_challenge(const struct tuple *t, __u32 slot, __u32 key)
{
	return syn_authenticate(t, 0, slot, SYN_CHALLENGE_KIND, key) & SYN_CHALLENGE_MASK;
}

/* Returns the number that challenges the sender of a SYN with this sequence number:
 * the next lower one with the correct lower half.
 */
static __always_inline __u32 syn_challenge_make(const struct tuple *t, __u32 seq)
{
	__u32 below = seq - syn_challenge(t, syn_slot(), 0) - 1;

	return seq - 1 - (below & SYN_CHALLENGE_MASK);
}

/* Reports whether a number is that of a challenge from this slot or the previous one. */
static __always_inline bool syn_challenge_valid(const struct tuple *t, __u32 number)
{
	__u32 slot = syn_slot(), n = syn_key_count();

	for (__u32 i = 0; i < SYN_KEYS && i < n; i++)
		if (((syn_challenge(t, slot, i) ^ number) & SYN_CHALLENGE_MASK) == 0 ||
		    ((syn_challenge(t, slot - 1, i) ^ number) & SYN_CHALLENGE_MASK) == 0)
			return true;
	return false;
}

#endif
