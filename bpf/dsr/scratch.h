/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory for processing one packet, beyond the stack's 512 bytes. One program at a
 * time runs on a CPU. Each call overwrites what the previous one left here.
 */
#ifndef FAIRLEAD_DSR_SCRATCH_H
#define FAIRLEAD_DSR_SCRATCH_H

#include "auth.h"
#include "common.h"
#include "flows.h"
#include "option.h"
#include "skb/error.h"
#include "skb/read.h"

/* A list's position, and where its backends start. */
struct list {
	__u32 at;    /* offset of its first endpoint in the frame */
	__u32 first; /* 1 after a VIP */
	__u32 n;
	bool v6;
	bool tagged; /* an authentication tag ends it */
};

/* A backend to forward to, and its index in the list. */
struct next {
	struct endpoint to;
	__u32 at;
	struct local_vip_key of
		__attribute__((aligned(8))); /* in next_servers, without the backend */
	__be16 port;			     /* the VIP's, as addressed by the client */
	bool range;			     /* the frontend is a port range */
	bool listed_port; /* use the list's ports: the packet is addressed with them */
};

/* A packet's option, including the bytes before its endpoints. */
struct option_bytes {
	__u8 b[OPTION6_HEAD + ENDPOINTS_MAX * ENDPOINT6_SIZE + AUTH_TAG_SIZE];
};

/* The headers between an outer IP header and the inner packet of GUE. */
struct gue_bytes {
	struct udphdr udp;
	struct gue gue;
	struct gue_list list;
	__u8 b[ENDPOINTS_MAX * ENDPOINT6_SIZE + AUTH_TAG_SIZE + 4];
};

struct scratch {
	struct view outer, inner;
	struct local_vip_key key __attribute__((aligned(8)));
	struct tuple flow __attribute__((aligned(8))); /* from the backend's view */
	struct endpoint vip __attribute__((aligned(8)));
	struct endpoint self; /* the backend as a list contains it */
	struct embedded embedded;
	struct next next;
	struct server_flow made; /* only if one was created */
	__be32 head[15];	 /* an IP header */
	struct option_bytes option;
	struct gue_bytes gue;
	__u64 tag;	       /* of the forwarded packet ... */
	bool retag;	       /* ... if it is set */
	bool proven;	       /* its tag was valid */
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
