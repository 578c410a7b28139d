/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet that exceeds the path MTU with the forwarding mode's overhead is answered,
 * from the address it was sent to, with the MTU that fits: fragmentation needed (RFC
 * 1191; also if the sender allows fragmentation, because the load balancer does not
 * fragment) or packet too big (RFC 4443, 3.2). Path MTU discovery and TCP do the
 * rest. Answers are rate-limited per CPU. Errors, later IPv4 fragments and impossible
 * source addresses get no answer (RFC 1122, 3.2.2).
 */
#ifndef FAIRLEAD_BALANCER_PACKET_TOO_BIG_H
#define FAIRLEAD_BALANCER_PACKET_TOO_BIG_H

#include "copy.h"
#include "edit.h"
#include "nat.h"
#include "scratch.h"
#include "vlan.h"

#define ANSWERS_PER_SECOND 1000
#define ANSWERS_AT_ONCE 100

#define ANSWER_TTL 64
#define ICMP4_UNREACHABLE 3
#define ICMP4_FRAGMENTATION_NEEDED 4
#define ICMP6_TOO_BIG 2

/* Maximum size of an IPv4 error (RFC 1812, 4.3.2.3) and an ICMPv6 error (RFC 4443,
 * 2.4 c).
 */
#define ANSWER4_MAX 576
#define ANSWER6_MAX 1280
#define MTU4_MIN 68
#define MTU6_MIN 1280

struct icmp_answer {
	__u8 type;
	__u8 code;
	__sum16 check;
	__be32 mtu; /* ICMP: in the lower half */
};

/* Remaining answers of a CPU. */
struct allowance {
	__u64 at; /* ns */
	__u64 left;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct allowance);
} answers SEC(".maps");

COPIES(answer_copies, struct allowance);

static __always_inline bool answer_allowed(void)
{
	__u64 now = bpf_ktime_get_coarse_ns(), grown;
	__u32 zero = 0;
	struct allowance *a = bpf_map_lookup_elem(&answers, &zero);

	a = writable(answer_copies, zero, a);
	if (!a)
		return false;
	grown = (now - a->at) / (1000000000 / ANSWERS_PER_SECOND);
	if (grown) {
		a->left = grown + a->left > ANSWERS_AT_ONCE ? ANSWERS_AT_ONCE : grown + a->left;
		a->at = now;
	}
	if (!a->left)
		return false;
	a->left--;
	return true;
}

#define SUM_CHUNK 64

/* State while summing bytes of the frame. The position is in r, as in options.h. */
struct summing {
	struct xdp_md *ctx;
	struct rare *r;
	__s64 sum; /* negative: failed */
	__u32 at;
	__u32 bytes;
};

static long sum_chunk(__u32 i __attribute__((unused)), void *arg)
{
	struct summing *s = arg;
	struct rare *r = s->r;
	__u32 at = r->walked, n = s->bytes - at;

	if (n == 0)
		return 1;
	n = within(n < SUM_CHUNK ? n : SUM_CHUNK, SUM_CHUNK);
	r->walked = at + n;
	if (bpf_xdp_load_bytes(s->ctx, s->at + at, r->front, n)) {
		s->sum = -1;
		return 1;
	}
	s->sum = bpf_csum_diff(NULL, 0, (__be32 *)r->front, n, s->sum);
	return s->sum < 0;
}

/* Sums bytes of the frame, a multiple of four. */
static __always_inline int sum_frame(struct xdp_md *ctx, struct rare *r, __u32 at, __u32 bytes)
{
	struct summing s = {.ctx = ctx, .r = r, .at = at, .bytes = bytes};

	r->walked = 0;
	bpf_loop(ANSWER6_MAX / SUM_CHUNK, sum_chunk, &s, 0);
	return s.sum < 0 ? -1 : csum_fold(s.sum);
}

/* Returns the answer's source address: the packet's destination, except that a nat
 * backend's reply is addressed to the client.
 */
static __always_inline const struct addr *answer_source(const struct rare *r)
{
	if (r->is_answer)
		return r->v6 ? &set.own6 : &set.own4;
	return &r->p.t.dst;
}

/* Writes the answer's IP header to r->front. Returns the initial sum of an ICMPv6
 * checksum.
 */
static __always_inline __u64 answer_ip_v4(struct rare *r, __u32 bytes)
{
	struct iphdr *ip = (struct iphdr *)r->front;

	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = 0xc0; /* internetwork control (RFC 1812, 4.3.2.5) */
	ip->tot_len = bpf_htons(sizeof(*ip) + bytes);
	ip->ttl = ANSWER_TTL;
	ip->protocol = IPPROTO_ICMP;
	ip->saddr = addr_to_v4(answer_source(r));
	ip->daddr = addr_to_v4(&r->p.t.src);
	ip->check = csum_ipv4(ip, sizeof(*ip));
	return 0;
}

static __always_inline __u64 sum_addr(const struct addr *a)
{
	return (__u64)a->word[0] + a->word[1] + a->word[2] + a->word[3];
}

static __always_inline __u64 answer_ip_v6(struct rare *r, __u32 bytes)
{
	struct ipv6hdr *ip = (struct ipv6hdr *)r->front;

	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 6;
	ip->payload_len = bpf_htons(bytes);
	ip->nexthdr = IPPROTO_ICMPV6;
	ip->hop_limit = ANSWER_TTL;
	addr_to_v6(&ip->saddr, answer_source(r));
	addr_to_v6(&ip->daddr, &r->p.t.src);
	return sum_addr(answer_source(r)) + sum_addr(&r->p.t.src) + bpf_htonl(bytes) +
	       bpf_htonl(IPPROTO_ICMPV6);
}

static __always_inline __u32 answer_mtu(const struct rare *r)
{
	__u32 least = r->v6 ? MTU6_MIN : MTU4_MIN;
	__s32 mtu = (__s32)r->mtu - r->more;

	return mtu < (__s32)least ? least : mtu;
}

/* Writes Ethernet, IP and ICMP headers before `quoted` bytes of the packet. */
static __always_inline bool answer_put(struct xdp_md *ctx, struct rare *r, __u32 quoted, int sum)
{
	struct icmp_answer icmp = {.mtu = bpf_htonl(answer_mtu(r))};
	__u32 header = r->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u64 whole = sum;

	whole += r->v6 ? answer_ip_v6(r, sizeof(icmp) + quoted)
		       : answer_ip_v4(r, sizeof(icmp) + quoted);
	icmp.type = r->v6 ? ICMP6_TOO_BIG : ICMP4_UNREACHABLE;
	icmp.code = r->v6 ? 0 : ICMP4_FRAGMENTATION_NEEDED;
	whole += *(__u16 *)&icmp + (__u64)icmp.mtu;
	icmp.check = ~csum_fold(whole);
	if (bpf_xdp_adjust_head(ctx, -(int)(header + sizeof(icmp))) || !vlan_put(ctx, r))
		return false;
	if (r->v6 ? bpf_xdp_store_bytes(ctx, r->own.l3, r->front, sizeof(struct ipv6hdr))
		  : bpf_xdp_store_bytes(ctx, r->own.l3, r->front, sizeof(struct iphdr)))
		return false;
	return bpf_xdp_store_bytes(ctx, r->own.l3 + header, &icmp, sizeof(icmp)) == 0;
}

/* r->mtu is the path MTU, r->more the forwarding mode's overhead. */
__noinline int too_big(struct xdp_md *ctx, struct rare *r)
{
	if (!r)
		return XDP_ABORTED;
	__u32 header = r->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u32 most = (r->v6 ? ANSWER6_MAX : ANSWER4_MAX) - header - sizeof(struct icmp_answer);
	__u32 quoted = r->own.end - r->own.l3;
	int verdict = drop(ctx, DROP_TOO_BIG), sum;

	if (quoted > most)
		quoted = most;
	quoted &= ~3; /* the sum works in words */
	if (r->is_error || addr_is_zero(answer_source(r)) || (!r->v6 && r->own.offset) ||
	    is_martian(&r->p.t.src, r->v6) || !answer_allowed())
		return verdict;
	sum = sum_frame(ctx, r, r->own.l3, quoted);
	if (sum < 0 || !vlan_l2(ctx, r))
		return verdict;
	vlan_turn(r);
	if (bpf_xdp_adjust_tail(ctx, -(int)(r->frame - r->own.l3 - quoted)))
		return verdict;
	if (!answer_put(ctx, r, quoted, sum))
		return verdict;
	trace_event(TRACE_ANSWER, r->v6 ? ICMP6_TOO_BIG : ICMP4_UNREACHABLE, answer_mtu(r));
	r->answered = true;
	return go(WAY_BACK, ctx->ingress_ifindex);
}

#endif
