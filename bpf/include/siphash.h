/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, 2.1)
 * of a message of complete words.
 */
#ifndef FAIRLEAD_SIPHASH_H
#define FAIRLEAD_SIPHASH_H

#include "common.h"

struct sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 sip_rotate(__u64 x, int left)
{
	return x << left | x >> (64 - left);
}

static __always_inline void sip_round(struct sip *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = sip_rotate(s->v1, 13) ^ s->v0;
	s->v3 = sip_rotate(s->v3, 16) ^ s->v2;
	s->v0 = sip_rotate(s->v0, 32);
	s->v2 += s->v1;
	s->v0 += s->v3;
	s->v1 = sip_rotate(s->v1, 17) ^ s->v2;
	s->v3 = sip_rotate(s->v3, 21) ^ s->v0;
	s->v2 = sip_rotate(s->v2, 32);
}

static __always_inline void sip_begin(struct sip *s, __u64 k0, __u64 k1)
{
	s->v0 = k0 ^ 0x736f6d6570736575ULL;
	s->v1 = k1 ^ 0x646f72616e646f6dULL;
	s->v2 = k0 ^ 0x6c7967656e657261ULL;
	s->v3 = k1 ^ 0x7465646279746573ULL;
}

static __always_inline void sip_word(struct sip *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

static __always_inline __u64 sip_end(struct sip *s, __u32 words)
{
	sip_word(s, (__u64)words * 8 << 56);
	s->v2 ^= 0xff;
#pragma unroll
	for (int i = 0; i < 4; i++)
		sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
