/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps through which the agent configures the service proxy's programs. The types
 * are generated into Go. Maps that only one step uses are in that step's header.
 *
 *   services --inside, outside--> targets[first ... first + count + keeps]
 *
 * A run of endpoints never changes while a service refers to it, nor while a program
 * may still read it for a service that did: the agent writes another run and then the
 * service, so that no packet sees a partial change. Services with equal endpoints
 * share a run. The endpoints that accept new flows come first, then those that only
 * keep their existing UDP flows; each sorted by address, then port. A change of a
 * type or map requires a new layout: PROXY_LAYOUT below, which is part of the pin
 * directory's name.
 */
#ifndef FAIRLEAD_PROXY_MAPS_H
#define FAIRLEAD_PROXY_MAPS_H

#include "addr.h"
#include "common.h"

enum proxy_layout {
	PROXY_LAYOUT = 2,
};

const volatile enum proxy_layout map_layout = PROXY_LAYOUT;

/* Same as proxy.Kind. */
enum service_kind {
	SERVICE_CLUSTER_IP = 0,
	SERVICE_EXTERNAL_IP = 1,
	SERVICE_LOAD_BALANCER_IP = 2,
	SERVICE_NODE_PORT = 3,
} __attribute__((packed));

/* Same as proxy.Empty: the result for clients without an endpoint. */
enum service_empty {
	EMPTY_REFUSED = 0,
	EMPTY_DROPPED = 1,
} __attribute__((packed));

enum service_flags {
	SERVICE_ALLOW = 1,  /* only clients in source_ranges are served ... */
	SERVICE_CLOSED = 2, /* ... and none is of this family */
} __attribute__((packed));

/* The address of a node port is ::ffff:0.0.0.0 or ::, see node_addresses. */
struct service_key {
	struct addr addr;
	__be16 port;
	__u8 proto;
	__u8 zero;
};

struct run {
	__u32 first;
	__u16 count;
	__u16 keeps;
};

struct service {
	struct run inside;  /* for this node's own sockets and pods */
	struct run outside; /* for clients elsewhere */
	__u32 id;	    /* of its affinities and source ranges */
	__u32 affinity;	    /* seconds; 0: none */
	enum service_kind kind;
	enum service_flags flags;
	enum service_empty inside_empty; /* if a run's count is 0 */
	enum service_empty outside_empty;
	__u32 check; /* service_check(), see find.h */
};

struct target {
	struct addr addr;
	__be16 port;
	__u8 local; /* runs on this node */
	__u8 zero[5];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct target);
} targets SEC(".maps");

/* The only clients of a service with SERVICE_ALLOW. Families need no separate lists:
 * a service has one family.
 */
struct source_range_key {
	__u32 prefixlen; /* in bits, including 32 of the id */
	__u32 id;	 /* the service's, as stored in memory */
	struct addr addr;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct source_range_key);
	__type(value, __u8);
} source_ranges SEC(".maps");

/* Number of opened connections, by service id. Updated atomically: a per-CPU map
 * would take megabytes per CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} connections SEC(".maps");

/* The addresses on which this node serves node ports. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct addr);
	__type(value, __u8);
} node_addresses SEC(".maps");

#endif
