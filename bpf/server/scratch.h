/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory for one packet's way through a program, where the stack's 512 bytes do
 * not do. One program at a time runs on a CPU; what one call leaves here the
 * next one overwrites.
 */
#ifndef FAIRLEAD_SERVER_SCRATCH_H
#define FAIRLEAD_SERVER_SCRATCH_H

#include "auth.h"
#include "common.h"
#include "flows.h"
#include "option.h"
#include "skb/error.h"
#include "skb/read.h"

/* Where a list is, and where in it the servers begin. */
struct list {
	__u32 at;    /* of its first endpoint in the frame */
	__u32 first; /* 1 behind a VIP */
	__u32 n;
	bool v6;
	bool tagged; /* an authentication tag ends it */
};

/* A server to send on to, and its place in the list. */
struct next {
	struct endpoint to;
	__u32 at;
	struct local_vip_key of
		__attribute__((aligned(8))); /* in next_servers, but for the server */
	__be16 port;			     /* the VIP's, as the client addressed it */
	bool range;			     /* the frontend is a range of ports */
	bool listed_port; /* the list's ports count: the packet is addressed by them */
};

/* The option of a packet with all that stands before its endpoints. */
struct option_bytes {
	__u8 b[OPTION6_HEAD + ENDPOINTS_MAX * ENDPOINT6_SIZE + AUTH_TAG_SIZE];
};

/* What stands between an outer IP header and the packet inside by GUE. */
struct gue_bytes {
	struct udphdr udp;
	struct gue gue;
	struct gue_list list;
	__u8 b[ENDPOINTS_MAX * ENDPOINT6_SIZE + AUTH_TAG_SIZE + 4];
};

struct scratch {
	struct view outer, inner;
	struct local_vip_key key __attribute__((aligned(8)));
	struct tuple flow __attribute__((aligned(8))); /* as the server has it */
	struct endpoint vip __attribute__((aligned(8)));
	struct endpoint self; /* the server as a list names it */
	struct embedded embedded;
	struct next next;
	struct server_flow made; /* perhaps */
	__be32 head[15];	 /* an IP header */
	struct option_bytes option;
	struct gue_bytes gue;
	__u64 tag;	       /* that a packet is sent on with ... */
	bool retag;	       /* ... if it is */
	bool proven;	       /* its tag was right */
	enum auth_place place; /* of its list */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct scratch);
	__uint(max_entries, 1);
} server_scratch SEC(".maps");

static __always_inline struct scratch *scratch(void)
{
	__u32 i = 0;

	return bpf_map_lookup_elem(&server_scratch, &i);
}

#endif
