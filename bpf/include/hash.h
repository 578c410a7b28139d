/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow hash: the same number for the same packet on every load balancer, on every
 * architecture and in Go (schedule.Hash is its counterpart; golden tests pin both).
 * Never change it on its own: load balancers of two versions may share one VIP.
 * Anyone can compute it, so flow tables that need no agreement use hash_keyed.
 */
#ifndef FAIRLEAD_HASH_H
#define FAIRLEAD_HASH_H

#include "common.h"
#include "parse.h"

/* Odd numbers without a pattern: digits of the golden ratio, the square roots of 2, 3
 * and 5, and pi.
 */
#define HASH_K0 0x9e3779b97f4a7c15ULL
#define HASH_K1 0x6a09e667f3bcc909ULL
#define HASH_K2 0xbb67ae8584caa73bULL
#define HASH_K3 0x3c6ef372fe94f82bULL
#define HASH_K4 0x243f6a8885a308d3ULL

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HASH_LE32(x) (x)
#else
#define HASH_LE32(x) __builtin_bswap32(x)
#endif

/* Reads two words as one little-endian number. */
static __always_inline __u64 hash_word(const __be32 *w)
{
	return (__u64)HASH_LE32(w[0]) | (__u64)HASH_LE32(w[1]) << 32;
}

/* Mixes every bit into every other bit. */
static __always_inline __u32 hash_finish(__u64 h)
{
	h ^= h >> 32;
	h *= HASH_K0;
	h ^= h >> 29;
	h *= HASH_K1;
	return h >> 32;
}

/* A sum of products, which a CPU computes in parallel, then the finish. */
static __always_inline __u32 flow_hash(const struct tuple *t)
{
	__u64 h;

	h = hash_word(&t->src.word[0]) * HASH_K0;
	h ^= hash_word(&t->src.word[2]) * HASH_K1;
	h += hash_word(&t->dst.word[0]) * HASH_K2;
	h ^= hash_word(&t->dst.word[2]) * HASH_K3;
	h += ((__u64)bpf_ntohs(t->sport) << 32 | (__u64)bpf_ntohs(t->dport) << 8 | t->proto) *
	     HASH_K4;
	return hash_finish(h);
}

/* Number of odd random numbers that hash_keyed needs. */
#define HASH_KEYS 10

static __always_inline __u64 hash_keyed_addr(const __u64 *k, const struct addr *a, bool v6)
{
	__u64 h = k[0] * a->word[3];

	if (v6) {
		h += k[1] * a->word[0];
		h += k[2] * a->word[1];
		h += k[3] * a->word[2];
	}
	return h;
}

/* An unfinished sum. Multilinear in 32-bit words with odd 64-bit keys: without the
 * keys nobody can construct two tuples of one set (Lemire and Kaser, Strongly
 * universal string hashing is fast).
 */
static __always_inline __u64 hash_keyed(const __u64 *k, const struct tuple *t, bool v6)
{
	__u64 h = hash_keyed_addr(&k[0], &t->src, v6) + hash_keyed_addr(&k[4], &t->dst, v6);

	h += k[8] * ((__u32)t->sport << 16 | t->dport);
	h += k[9] * (t->proto | (v6 ? 0x100 : 0));
	return h;
}

/* The hash of one address, for the bitmap of addresses that may be ours
 * (schedule.AddrHash is its counterpart).
 */
static __always_inline __u32 addr_hash(const struct addr *a)
{
	return hash_finish((hash_word(&a->word[0]) * HASH_K0) ^ (hash_word(&a->word[2]) * HASH_K1));
}

/* Returns a slot of a ring with the given size, without a division. */
static __always_inline __u32 hash_slot(__u32 hash, __u32 size)
{
	return (__u64)hash * size >> 32;
}

#endif
