/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the first part of a stopped child's FPU state and checks the result. On an
 * error it prints the error and exits with status 1. The part is x87, SSE and AVX,
 * or without AVX on a CPU that has no more than that. */
#include <elf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { XMM0 = 160, XFEATURES = 512, SSE = 576, AVX = 832 };

static uint8_t before[65536], after[65536];
static pid_t child;

static void check(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	kill(child, SIGKILL);
	exit(1);
}

int main(void)
{
	struct iovec v = { before, sizeof(before) };
	uint64_t present;
	size_t part;
	int status;

	child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child && WIFSTOPPED(status), "wait");
	check(!ptrace(PTRACE_GETREGSET, child, NT_X86_XSTATE, &v), "get");
	part = v.iov_len > AVX ? AVX : SSE;
	check(v.iov_len > part, "the state is small");

	memset(before + XMM0, 0x5a, 16);
	memcpy(&present, before + XFEATURES, sizeof(present));
	present |= 2; /* SSE, and the components present before, even those that are not passed on */
	memcpy(before + XFEATURES, &present, sizeof(present));
	v.iov_len = part;
	check(!ptrace(PTRACE_SETREGSET, child, NT_X86_XSTATE, &v), "set");

	v = (struct iovec){ after, sizeof(after) };
	check(!ptrace(PTRACE_GETREGSET, child, NT_X86_XSTATE, &v), "get again");
	check(!memcmp(before + XMM0, after + XMM0, 16), "xmm0");
	ptrace(PTRACE_CONT, child, 0, 0);
	check(waitpid(child, &status, 0) == child && WIFEXITED(status), "end");
	return 0;
}
