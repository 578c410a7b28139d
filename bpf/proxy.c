/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The service proxy for clients on this node: a socket that connects or sends to a
 * service is given one of its endpoints before a packet is created, so no packet must
 * be rewritten.
 *
 *   connect4, connect6, sendmsg4, sendmsg6            service -> endpoint
 *   recvmsg4, recvmsg6, getpeername4, getpeername6    endpoint -> service
 *
 * They apply to the processes of a cgroup. What they leave unmodified goes to the
 * service's own address, which the packet programs serve: a service with source
 * ranges, because a socket's address is not known yet; one whose packets are dropped;
 * and SCTP.
 */
#include "proxy/choose.h"
#include "proxy/find.h"
#include "proxy/orig_dst.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define ECONNREFUSED 111

enum {
	VERDICT_REFUSE = 0,
	VERDICT_GO = 1,
};

/* How long an idle unconnected UDP socket keeps its endpoint: as long as connection
 * tracking would (nf_conntrack_udp_timeout_stream).
 */
#define SENDER_SECONDS 120

/* Those endpoints. Separate from the affinities: sockets with a single query, such as
 * DNS, are many and would evict them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct affinity_key);
	__type(value, struct affinity);
} senders SEC(".maps");

/* The network namespace whose loopback serves node ports: the node's. */
const volatile __u64 node_netns = 0;

/* Pods are left to the packet programs. */
const volatile bool node_only = false;

static __always_inline bool is_this_host(const struct addr *a)
{
	__be32 v4 = addr_to_v4(a);

	if (addr_is_v4(a))
		return !v4 || (v4 & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
	return !(a->word[0] | a->word[1] | a->word[2]) && !(a->word[3] & ~bpf_htonl(1));
}

/* Finds the service that a socket addresses, with its key in k. An address of the
 * host itself means another host in each network namespace.
 */
static __always_inline bool find_asked(struct bpf_sock_addr *ctx, struct service_key *k,
				       struct service *s)
{
	bool here = is_this_host(&k->addr);

	if ((here || node_only) && bpf_get_netns_cookie(ctx) != node_netns)
		return false;
	if (here)
		return find_node_port(k, s);
	return find_service(k, s) || (is_node_address(&k->addr) && find_node_port(k, s));
}

static __always_inline bool choose(struct bpf_sock_addr *ctx, const struct service *s,
				   bool connecting, struct affinity *chosen)
{
	struct affinity_key sender = {.id = s->id, .kind = CLIENT_SOCKET};
	struct affinity_key k = {.id = s->id, .kind = CLIENT_NETNS};

	if (!connecting) {
		client_from_cookie(&sender, bpf_get_socket_cookie(ctx));
		if (recall(&senders, &s->inside, SENDER_SECONDS, &sender, true, chosen))
			return true;
	}
	client_from_cookie(&k, bpf_get_netns_cookie(ctx));
	if (!choose_target(&s->inside, s->affinity, &k, chosen))
		return false;
	if (!connecting)
		bpf_map_update_elem(&senders, &sender, chosen, BPF_ANY);
	return true;
}

enum outcome {
	OUTCOME_UNTOUCHED,
	OUTCOME_CHANGED,
	OUTCOME_REFUSED,
};

/* Replaces the service in `to` with an endpoint. */
static __always_inline enum outcome toward_target(struct bpf_sock_addr *ctx, struct endpoint *to,
						  bool connecting)
{
	struct origin o = {.service = {.addr = to->addr, .port = to->port, .proto = ctx->protocol},
			   .asked = *to};
	struct affinity chosen = {};
	struct service s;

	if (ctx->protocol != IPPROTO_TCP && ctx->protocol != IPPROTO_UDP)
		return OUTCOME_UNTOUCHED;
	if (!find_asked(ctx, &o.service, &s) || s.flags & SERVICE_ALLOW)
		return OUTCOME_UNTOUCHED;
	if (!choose(ctx, &s, connecting, &chosen))
		return s.inside.count || s.inside_empty == EMPTY_DROPPED ? OUTCOME_UNTOUCHED
									 : OUTCOME_REFUSED;
	o.target.addr = chosen.addr;
	o.target.port = chosen.port;
	if (connecting) {
		remember_connected(ctx, &o);
		count_connection(&s);
	} else {
		remember_sent(ctx, to, &o.target);
	}
	*to = o.target;
	return OUTCOME_CHANGED;
}

static __always_inline int forward(struct bpf_sock_addr *ctx, struct endpoint *to, bool connecting,
				   bool *changed)
{
	enum outcome outcome = toward_target(ctx, to, connecting);

	*changed = outcome == OUTCOME_CHANGED;
	if (connecting && !*changed)
		forget_connected(ctx, to);
	if (outcome != OUTCOME_REFUSED)
		return VERDICT_GO;
	bpf_set_retval(-ECONNREFUSED);
	return VERDICT_REFUSE;
}

static __always_inline void read4(struct bpf_sock_addr *ctx, struct endpoint *e)
{
	addr_from_v4(&e->addr, ctx->user_ip4);
	e->port = (__be16)ctx->user_port;
}

static __always_inline void write4(struct bpf_sock_addr *ctx, const struct endpoint *e)
{
	ctx->user_ip4 = addr_to_v4(&e->addr);
	ctx->user_port = e->port;
}

static __always_inline void read6(struct bpf_sock_addr *ctx, struct endpoint *e)
{
	e->addr.word[0] = ctx->user_ip6[0];
	e->addr.word[1] = ctx->user_ip6[1];
	e->addr.word[2] = ctx->user_ip6[2];
	e->addr.word[3] = ctx->user_ip6[3];
	e->port = (__be16)ctx->user_port;
}

static __always_inline void write6(struct bpf_sock_addr *ctx, const struct endpoint *e)
{
	ctx->user_ip6[0] = e->addr.word[0];
	ctx->user_ip6[1] = e->addr.word[1];
	ctx->user_ip6[2] = e->addr.word[2];
	ctx->user_ip6[3] = e->addr.word[3];
	ctx->user_port = e->port;
}

static __always_inline int forward4(struct bpf_sock_addr *ctx, bool connecting)
{
	struct endpoint to = {};
	bool changed;
	int verdict;

	read4(ctx, &to);
	verdict = forward(ctx, &to, connecting, &changed);
	if (changed)
		write4(ctx, &to);
	return verdict;
}

static __always_inline int forward6(struct bpf_sock_addr *ctx, bool connecting)
{
	struct endpoint to = {};
	bool changed;
	int verdict;

	read6(ctx, &to);
	verdict = forward(ctx, &to, connecting, &changed);
	if (changed)
		write6(ctx, &to);
	return verdict;
}

static __always_inline int restore4(struct bpf_sock_addr *ctx)
{
	struct endpoint peer = {};

	read4(ctx, &peer);
	if (find_origin(ctx, &peer))
		write4(ctx, &peer);
	return VERDICT_GO;
}

static __always_inline int restore6(struct bpf_sock_addr *ctx)
{
	struct endpoint peer = {};

	read6(ctx, &peer);
	if (find_origin(ctx, &peer))
		write6(ctx, &peer);
	return VERDICT_GO;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	return forward4(ctx, true);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	return forward6(ctx, true);
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
	return forward4(ctx, false);
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
	return forward6(ctx, false);
}

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx)
{
	return restore4(ctx);
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx)
{
	return restore6(ctx);
}

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
	return restore4(ctx);
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
	return restore6(ctx);
}

SEC("iter/bpf_sk_storage_map")
int list_origins(struct origin_in_turn *turn)
{
	report_origin(turn);
	return 0;
}
