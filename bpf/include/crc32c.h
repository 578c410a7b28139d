/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Incremental updates of SCTP's checksum. A CRC is linear: its change depends on the
 * changed bits and on the number of bytes that follow, not on their content. So a
 * port change (the first four bytes) costs one multiplication per set bit of the
 * length, regardless of the packet's content.
 */
#ifndef FAIRLEAD_CRC32C_H
#define FAIRLEAD_CRC32C_H

#include "common.h"

#define CRC32C_POLYNOMIAL 0x82f63b78 /* RFC 9260, appendix A, bits reversed */

/* x to the power of 8 << i, in CRC notation: the highest bit is x to the 0. */
static const __u32 crc32c_power[16] = {
	0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a,
	0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a,
	0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
};

/* Returns the product of two polynomials modulo CRC32c's. Global, so that the
 * verifier checks it once.
 */
__noinline __u32 crc32c_multiply(__u32 a, __u32 b)
{
	__u32 product = 0;

	for (int i = 31; i >= 0; i--) {
		__u32 in_a = a >> i & 1, over = b & 1;

		/* Products, not masks: the verifier would follow both cases of a mask. */
		asm volatile("" : "+r"(in_a), "+r"(over));
		product ^= b * in_a;
		b = b >> 1 ^ CRC32C_POLYNOMIAL * over;
	}
	return product;
}

/* Returns the checksum change of a packet with this many bytes when these bits of its
 * first four bytes change, in packet order. Also global.
 */
__noinline __u32 crc32c_change(__u32 first, __u16 bytes)
{
	for (int i = 0; i < 16; i++)
		if (bytes >> i & 1)
			first = crc32c_multiply(first, crc32c_power[i]);
	return first;
}

#endif
