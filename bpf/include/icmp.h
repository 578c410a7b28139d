/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The error messages of ICMP (RFC 792) and ICMPv6 (RFC 4443): they quote the packet
 * that they are about, after a header of eight bytes.
 */
#ifndef FAIRLEAD_ICMP_H
#define FAIRLEAD_ICMP_H

#include "common.h"

#define ICMP_HEAD 8

/* linux/icmp.h and icmpv6.h define these, but need more of libc than a program has. */
#define ICMP_DEST_UNREACH 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PARAMPROB 4

static __always_inline bool is_error(__u8 type, bool v6)
{
	if (v6)
		return type >= ICMPV6_DEST_UNREACH && type <= ICMPV6_PARAMPROB;
	return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED ||
	       type == ICMP_PARAMETERPROB;
}

#endif
