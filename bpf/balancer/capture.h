/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies packets before and after processing for `fairlead capture`, if they match
 * the filter. Only a program loaded with watching set makes copies; it replaces the
 * ordinary program during a capture. In all others the verifier removes this code.
 *
 * fentry and fexit programs cannot do this: kernels in lockdown (security/lockdown,
 * as with secure boot) do not support them.
 */
#ifndef FAIRLEAD_BALANCER_CAPTURE_H
#define FAIRLEAD_BALANCER_CAPTURE_H

#include "addr.h"
#include "common.h"

/* The filter, set at load. Zeros match everything. */
struct watch_filter {
	struct addr vip;    /* source or destination */
	struct addr client; /* source or destination */
	__be16 port;	    /* source or destination */
	__u16 zero;
	__u32 ifindex;
	__u32 sample;  /* copy one of this many packets, at random */
	__u32 snaplen; /* bytes of a frame */
	__u32 before;
	__u32 after;
};

volatile const bool watching = false;
volatile const struct watch_filter watch_filter = {};

/* Deadline in nanoseconds of CLOCK_MONOTONIC_COARSE, which the capturing process
 * keeps extending. If that process is killed, this program stays attached but
 * reports nothing.
 */
volatile __u64 watch_until SEC(".data.watch") = 0;

enum watch_when {
	WATCH_BEFORE = 0,
	WATCH_AFTER = 1,
};

/* Header before the frame's bytes. */
struct watch_record {
	__u64 time;   /* nanoseconds of CLOCK_MONOTONIC */
	__u64 number; /* of the packet, on this CPU */
	__u32 ifindex;
	__u32 length;
	__u32 caught;
	__u32 verdict; /* enum xdp_action, after */
	enum watch_when when;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} watched SEC(".maps");

/* The packet being processed. No other packet can interleave on this CPU. */
struct watch_current {
	struct watch_record r;
	__u32 wanted;
	__u32 chosen; /* by sampling */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct watch_current);
} watch_current SEC(".maps");

/* Reads a frame piece by piece, also across several buffers. */
struct watch_frame {
	struct xdp_md *ctx;
	__u32 at;
	__u8 proto; /* of the header at this offset: IPPROTO_* */
	__u8 whole; /* not a later fragment */
};

static __always_inline bool watch_read(struct watch_frame *f, void *to, __u32 bytes)
{
	return !bpf_xdp_load_bytes(f->ctx, f->at, to, bytes);
}

static __always_inline bool watch_any(const volatile struct addr *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

static __always_inline bool watch_is_end(const volatile struct addr *wanted, const struct addr *src,
					 const struct addr *dst)
{
	struct addr w = {{wanted->word[0], wanted->word[1], wanted->word[2], wanted->word[3]}};

	return addr_is_zero(&w) || addr_equal(&w, src) || addr_equal(&w, dst);
}

static __always_inline bool watch_ports(struct watch_frame *f)
{
	__be16 port[2];

	if (!watch_filter.port)
		return true;
	if (f->proto != IPPROTO_TCP && f->proto != IPPROTO_UDP && f->proto != IPPROTO_SCTP)
		return false;
	if (!f->whole || !watch_read(f, port, sizeof(port)))
		return false;
	return port[0] == watch_filter.port || port[1] == watch_filter.port;
}

static __always_inline bool watch_v4(struct watch_frame *f, struct addr *src, struct addr *dst)
{
	struct iphdr ip;

	if (!watch_read(f, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
		return false;
	addr_from_v4(src, ip.saddr);
	addr_from_v4(dst, ip.daddr);
	f->at += ip.ihl * 4;
	f->proto = ip.protocol;
	f->whole = !(ip.frag_off & bpf_htons(0x1fff));
	return true;
}

static __always_inline bool watch_v6(struct watch_frame *f, struct addr *src, struct addr *dst)
{
	struct ipv6hdr ip;
	__u8 ext[4];

	if (!watch_read(f, &ip, sizeof(ip)) || ip.version != 6)
		return false;
	addr_from_v6(src, &ip.saddr);
	addr_from_v6(dst, &ip.daddr);
	f->at += sizeof(ip);
	f->proto = ip.nexthdr;
	f->whole = true;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		if (f->proto != IPPROTO_HOPOPTS && f->proto != IPPROTO_DSTOPTS &&
		    f->proto != IPPROTO_ROUTING && f->proto != IPPROTO_FRAGMENT)
			break;
		if (!watch_read(f, ext, sizeof(ext)))
			break;
		if (f->proto == IPPROTO_FRAGMENT) {
			f->whole = !(ext[2] | (ext[3] & 0xf8));
			f->at += 8;
		} else {
			f->at += 8 + 8 * ext[1];
		}
		f->proto = ext[0];
	}
	return true;
}

/* Matches one IP header and, for a tunnel, the inner one. */
static __noinline bool watch_ip(struct watch_frame *f, bool v6)
{
	struct addr src, dst;

	if (!f)
		return false;
#pragma unroll
	for (int depth = 0; depth < 2; depth++) {
		if (v6 ? !watch_v6(f, &src, &dst) : !watch_v4(f, &src, &dst))
			return false;
		if (watch_is_end(&watch_filter.vip, &src, &dst) &&
		    watch_is_end(&watch_filter.client, &src, &dst) && watch_ports(f))
			return true;
		if (f->proto != IPPROTO_IPIP && f->proto != IPPROTO_IPV6)
			return false;
		v6 = f->proto == IPPROTO_IPV6;
	}
	return false;
}

static __always_inline bool watch_matches(struct xdp_md *ctx)
{
	struct watch_frame f = {.ctx = ctx, .at = 12};
	__be16 proto;

	if (watch_filter.ifindex && ctx->ingress_ifindex != watch_filter.ifindex)
		return false;
	if (watch_any(&watch_filter.vip) && watch_any(&watch_filter.client) && !watch_filter.port)
		return true;
	if (!watch_read(&f, &proto, sizeof(proto)))
		return false;
#pragma unroll
	for (int tags = 0; tags < 2; tags++) {
		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		f.at += 4;
		if (!watch_read(&f, &proto, sizeof(proto)))
			return false;
	}
	f.at += 2;
	if (proto == bpf_htons(ETH_P_IP))
		return watch_ip(&f, false);
	return proto == bpf_htons(ETH_P_IPV6) && watch_ip(&f, true);
}

static __always_inline void watch_report(struct xdp_md *ctx, struct watch_record *r)
{
	__u32 most = watch_filter.snaplen;

	r->time = bpf_ktime_get_ns();
	r->ifindex = ctx->ingress_ifindex;
	r->length = bpf_xdp_get_buff_len(ctx);
	r->caught = r->length < most ? r->length : most;
	bpf_perf_event_output(ctx, &watched, (__u64)r->caught << 32 | BPF_F_CURRENT_CPU, r,
			      sizeof(*r));
}

__noinline int watch_before(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct watch_current *now = bpf_map_lookup_elem(&watch_current, &zero);

	if (!now)
		return 0;
	now->chosen = false;
	if (bpf_ktime_get_coarse_ns() > watch_until)
		return 0;
	now->r.number++;
	now->r.when = WATCH_BEFORE;
	now->r.verdict = 0;
	now->chosen = !watch_filter.sample || bpf_get_prandom_u32() % watch_filter.sample == 0;
	now->wanted = now->chosen && watch_matches(ctx);
	if (watch_filter.before && now->wanted)
		watch_report(ctx, &now->r);
	return 0;
}

/* A packet may match only now: a reply gets the VIP as its source here. */
__noinline int watch_after(struct xdp_md *ctx, int verdict)
{
	__u32 zero = 0;
	struct watch_current *now = bpf_map_lookup_elem(&watch_current, &zero);

	if (!now || !now->chosen || !watch_filter.after)
		return 0;
	now->r.when = WATCH_AFTER;
	now->r.verdict = verdict;
	if (now->wanted || watch_matches(ctx))
		watch_report(ctx, &now->r);
	return 0;
}

#endif
