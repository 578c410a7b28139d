/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Included first by every Fairlead program: kernel types, helpers, and the few macros
 * that the compiler or the verifier needs.
 */
#ifndef FAIRLEAD_COMMON_H
#define FAIRLEAD_COMMON_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <stdbool.h>
#include <stddef.h>

/* The address families of bpf_fib_lookup, which no uapi header defines. */
#ifndef AF_INET
#define AF_INET 2
#endif
#ifndef AF_INET6
#define AF_INET6 10
#endif

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Returns a length that is from 1 to limit, a power of two, in a form that Linux 6.1
 * understands: its verifier learns nothing from "not zero".
 */
static __always_inline __u32 within(__u32 bytes, __u32 limit)
{
	asm volatile("" : "+r"(bytes));
	bytes = ((bytes - 1) & (limit - 1)) + 1;
	asm volatile("" : "+r"(bytes)); /* compare this value later */
	return bytes;
}

#endif
