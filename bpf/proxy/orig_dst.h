/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Maps a socket's endpoint back to its service, so that the socket sees the address
 * that it asked for.
 */
#ifndef FAIRLEAD_PROXY_ORIG_DST_H
#define FAIRLEAD_PROXY_ORIG_DST_H

#include "proxy/maps.h"

#ifndef SOCK_DGRAM
#define SOCK_DGRAM 2
#endif

struct endpoint {
	struct addr addr;
	__be16 port;
	__u8 zero[6];
};

/* State of a connected socket, which ends with it. The agent reads those of UDP to
 * find the sockets whose endpoint is removed.
 */
struct origin {
	struct service_key service; /* as in the map: for a node port, without an address */
	__u32 zero;
	struct endpoint asked, target;
	__u64 cookie, netns; /* for UDP */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct origin);
} origins SEC(".maps");

/* State of an unconnected socket, which may talk to many endpoints. */
struct sent_key {
	__u64 cookie;
	struct endpoint target;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct sent_key);
	__type(value, struct endpoint); /* the address asked for */
} sent SEC(".maps");

static __always_inline bool endpoint_equal(const struct endpoint *a, const struct endpoint *b)
{
	return a->port == b->port && addr_equal(&a->addr, &b->addr);
}

static __always_inline void remember_sent(struct bpf_sock_addr *ctx, const struct endpoint *asked,
					  const struct endpoint *target)
{
	struct sent_key k = {.cookie = bpf_get_socket_cookie(ctx), .target = *target};
	const struct endpoint *held = bpf_map_lookup_elem(&sent, &k);

	if (!held || !endpoint_equal(held, asked))
		bpf_map_update_elem(&sent, &k, asked, BPF_ANY);
}

/* Set if the kernel rejects the iterator: the agent then finds the origins of
 * connected UDP sockets among those of unconnected ones.
 */
const volatile bool without_socket_iterator = false;

static __always_inline void remember_connected(struct bpf_sock_addr *ctx, struct origin *o)
{
	struct origin *held = NULL;

	if (ctx->sk)
		held = bpf_sk_storage_get(&origins, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!held)
		return;
	if (ctx->protocol == IPPROTO_UDP) {
		o->cookie = bpf_get_socket_cookie(ctx);
		o->netns = bpf_get_netns_cookie(ctx);
		if (without_socket_iterator)
			remember_sent(ctx, &o->asked, &o->target);
	}
	*held = *o;
}

/* struct bpf_iter__bpf_sk_storage_map and the types it refers to, as far as needed
 * (net/core/bpf_sk_storage.c).
 */
struct origin_in_turn {
	struct {
		struct seq_file *seq;
	} *meta;
	void *map, *sk;
	struct origin *value;
};

/* Writes all origins of UDP sockets to the agent, one after the other. */
static __always_inline void report_origin(struct origin_in_turn *turn)
{
	struct origin *o = turn->value;

	if (o && o->service.proto == IPPROTO_UDP)
		bpf_seq_write(turn->meta->seq, o, sizeof(*o));
}

/* A socket may connect again, to a destination that is no service. */
static __always_inline void forget_connected(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	struct sent_key k = {.target = *to};

	if (ctx->sk)
		bpf_sk_storage_delete(&origins, ctx->sk);
	if (without_socket_iterator) {
		k.cookie = bpf_get_socket_cookie(ctx);
		bpf_map_delete_elem(&sent, &k);
	}
}

/* Replaces a peer's address with the one that the socket asked for. Returns false if
 * it asked for this one.
 */
static __always_inline bool find_origin(struct bpf_sock_addr *ctx, struct endpoint *peer)
{
	struct sent_key k = {.target = *peer};
	const struct endpoint *asked;
	const struct origin *o = NULL;

	if (ctx->sk)
		o = bpf_sk_storage_get(&origins, ctx->sk, NULL, 0);
	if (o && endpoint_equal(&o->target, peer)) {
		*peer = o->asked;
		return true;
	}
	if (ctx->type != SOCK_DGRAM)
		return false;
	k.cookie = bpf_get_socket_cookie(ctx);
	asked = bpf_map_lookup_elem(&sent, &k);
	if (asked)
		*peer = *asked;
	return asked != NULL;
}

#endif
