/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that linux.uml preloads: a ptrace that sets the complete FPU state.
 *
 * User-mode Linux 6.1 restores 2696 bytes of it (x87 to PKRU). The kernel only
 * accepts the complete state (arch/x86/kernel/fpu/regset.c, xstateregs_set), which
 * is larger if the CPU has AMX, and the guest would end before its first process.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

/* The XSAVE header follows the legacy region (Intel SDM, vol. 1, 13.4). */
enum { HEADER = 512, HEADER_END = 576 };

typedef long (*ptrace_fn)(int, long, void *, void *);

/* The state components within the first n bytes. CPUID is executed only once: in a
   virtual machine each of the sixty instructions causes an exit, and this function is
   called whenever the guest switches between kernel and process. */
static uint64_t components_within(size_t n)
{
	static uint64_t within;
	static size_t asked;
	unsigned int size, offset, c, d;

	if (n == asked)
		return within;
	within = 3; /* x87 and SSE: the legacy region */
	for (unsigned int i = 2; i < 63; i++)
		if (__get_cpuid_count(0xd, i, &size, &offset, &c, &d) && size && offset + size <= n)
			within |= 1ULL << i;
	asked = n;
	return within;
}

static long set_whole(ptrace_fn real, long pid, void *kind, struct iovec *given)
{
	static uint8_t state[65536] __attribute__((aligned(64)));
	struct iovec whole = { state, sizeof(state) };
	uint64_t present;

	if (real(PTRACE_GETREGSET, pid, kind, &whole) < 0)
		return -1;
	if (given->iov_len >= whole.iov_len || given->iov_len < HEADER_END)
		return real(PTRACE_SETREGSET, pid, kind, given);
	memset(state, 0, whole.iov_len);
	memcpy(state, given->iov_base, given->iov_len);
	/* Components that are not given have their initial state; the rest of the
	   header is reserved. */
	memcpy(&present, state + HEADER, sizeof(present));
	present &= components_within(given->iov_len);
	memset(state + HEADER, 0, HEADER_END - HEADER);
	memcpy(state + HEADER, &present, sizeof(present));
	return real(PTRACE_SETREGSET, pid, kind, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_fn real;
	va_list args;
	va_start(args, request);
	long pid = va_arg(args, long);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);

	if (!real)
		real = (ptrace_fn)dlsym(RTLD_NEXT, "ptrace");
	if (request == PTRACE_SETREGSET && (long)addr == NT_X86_XSTATE)
		return set_whole(real, pid, addr, data);
	return real(request, pid, addr, data);
}
