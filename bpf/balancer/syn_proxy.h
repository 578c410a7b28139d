/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections opened by a cookie, with nat and fullnat. The client has our sequence
 * numbers instead of the backend's:
 *
 *   client                       load balancer                     backend
 *     SYN c ─────────────────────────►
 *     ◄───────── SYN-ACK k, c+1, window 0          no state is kept
 *     ACK c+1, k+1 ──────────────────► a flow       SYN c ────────────►
 *                                      shift = k-s  ◄──── SYN-ACK s, c+1
 *     ◄───────────────── ACK k+1, c+1, window
 *     data c+1, k+1 ─────────────────►              data c+1, s+1 ────►
 *     ◄───────────── k+1 ............. shift ............. s+1
 *
 * The zero window keeps the client from sending data before the backend can receive
 * it. The client's first segment after that completes the backend's handshake. If the
 * client waits for the backend to send first, the handshake completes when the
 * backend repeats its SYN-ACK, after a second.
 *
 * Sequence and acknowledgment numbers, the edges of selective acknowledgments,
 * timestamps, and windows are shifted, the latter if the backend's scale differs from
 * ours.
 */
#ifndef FAIRLEAD_BALANCER_SYN_PROXY_H
#define FAIRLEAD_BALANCER_SYN_PROXY_H

#include "syn_packet.h"

/* In the protocol field of a flow's data: only this program matches its packets. */
#define SYN_FLOW_PROTO (IPPROTO_TCP | FLOW_PROXIED)

/* Stores the contents of the cookie and its ACK for the claimed flow. On Linux 6.1 a map
 * takes no value from an argument of a global function, so the scratch is looked up again.
 */
static __always_inline bool syn_flow_make(struct syn_scratch *s)
{
	const struct syn_options *o = &s->client;
	struct syn_scratch *again = syn_scratch_get();
	__u32 index = s->o.index;
	struct syn_flow *f;

	if (!again)
		return false;
	f = &again->flow;
	__builtin_memset(f, 0, sizeof(*f));
	f->tag = s->o.tag;
	f->made = s->o.now;
	f->cookie = s->o.ack - 1;
	f->seq = s->o.seq - 1;
	f->mss = o->mss;
	f->flags = o->sack ? SYN_FLOW_SACK : 0;
	if (o->scale != SYN_NO_SCALE) {
		f->flags |= SYN_FLOW_SCALES;
		f->scale = o->scale;
	}
	if (s->in.timestamps) {
		f->flags |= SYN_FLOW_TIMESTAMPS;
		f->ts_value = bpf_ntohl(s->in.ts_value);
		f->ts_echo = bpf_ntohl(s->in.ts_echo);
	}
#ifdef TRACING
	return !bpf_map_update_elem(&syn_flow_copies, &index, f, BPF_ANY);
#else
	return !bpf_map_update_elem(&syn_flows, &index, f, BPF_ANY);
#endif
}

/* Returns the backend of a flow and its next hop for len bytes; 0, or a verdict. */
static __always_inline int syn_way(struct xdp_md *ctx, struct choice *ch, __u64 word, __u32 len,
				   enum way *way)
{
	struct pick k = {.id = flow_server(word)};

	if (!choice_of(ch, &k))
		return drop(ctx, DROP_NO_BACKEND);
	*way = way_to(ctx, ch);
	if (way_leads_nowhere(*way))
		return drop_way(ctx, *way);
	return way_fits(*way, ch, len) ? 0 : TO_SLOW_PATH_TOO_BIG;
}

/* Translates a client's packet to the backend's view. */
static __always_inline void syn_toward(struct tuple *to, const struct tuple *from,
				       const struct choice *ch, __be16 own_port, bool v6)
{
	*to = *from;
	to->dst = ch->server->addr;
	to->dport = nat_server_port(ch->server, from->dport);
	if (own_port) {
		to->src = v6 ? set.own6 : set.own4;
		to->sport = own_port;
	}
}

static __always_inline void syn_of_flow(struct syn_made *m, const struct syn_flow *f)
{
	m->opens = true;
	m->seq = f->seq;
	m->window = 0xffff;
	m->timestamps = f->flags & SYN_FLOW_TIMESTAMPS;
	m->ts_value = f->ts_value;
	m->syn.mss = f->mss;
	m->syn.sack = f->flags & SYN_FLOW_SACK;
	m->syn.scale = f->flags & SYN_FLOW_SCALES ? f->scale : SYN_NO_SCALE;
}

/* Replaces the client's packet with a SYN to the backend of the flow in s->o. */
__noinline int syn_open_server(struct xdp_md *ctx, struct syn_scratch *s, const struct frontend *f,
			       bool v6)
{
	struct syn_flow *flow;
	struct choice ch;
	__be16 own_port;
	enum way way;
	int verdict;

	if (!ctx || !s || !f)
		return XDP_ABORTED;
	flow = syn_flow_of(s->o.index, s->o.tag);
	if (!flow || !nat_own_port(s->o.index, s->o.tag, &own_port))
		return drop(ctx, DROP_SYN_FLOW_LOST);
	verdict = syn_way(ctx, &ch, s->o.word, 0, &way);
	if (verdict)
		return verdict;
	syn_of_flow(syn_make(s, TCP_BYTE_SYN), flow);
	syn_toward(&s->turned, &s->p.t, &ch, own_port, v6);
	if (!syn_put(ctx, s, v6))
		return drop(ctx, DROP_NO_HEADROOM);
	verdict = leave_to(ctx, &ch, way, v6);
	if (sent(verdict))
		count(f->id, ch.cpu, s->p.len, s->o.fresh);
	return verdict;
}

/* Adds to a number in the options of s->to. */
static __always_inline void segment_add(struct segment *g, __u32 at, __u32 more)
{
	__be32 n;

	if (at > TCP_OPTIONS_MAX - sizeof(n))
		return;
	__builtin_memcpy(&n, g->options + at, sizeof(n));
	n = bpf_htonl(bpf_ntohl(n) + more);
	__builtin_memcpy(g->options + at, &n, sizeof(n));
}

/* Amounts to add to the numbers in options. */
struct syn_shift {
	struct segment *to;
	__u32 sack;
	__u32 ts_value;
	__u32 ts_echo;
};

/* Shifts one option. A segment has room for four SACK ranges (RFC 2018, 3). */
static long segment_shift(__u32 i __attribute__((unused)), void *arg)
{
	struct syn_shift *w = arg;
	struct segment *g = w->to;
	__u32 at = g->walked, len;
	__u8 kind;

	if (at >= g->bytes || at >= TCP_OPTIONS_MAX - 1)
		return 1;
	kind = g->options[at];
	if (kind == TCP_OPTION_END)
		return 1;
	if (kind == TCP_OPTION_NOP) {
		g->walked = at + 1;
		return 0;
	}
	len = g->options[at + 1];
	if (len < 2 || at + len > g->bytes)
		return 1;
	g->walked = at + len;
	if (kind == TCP_OPTION_TIMESTAMPS && len == 10) {
		segment_add(g, at + 2, w->ts_value);
		segment_add(g, at + 6, w->ts_echo);
	}
	if (kind == TCP_OPTION_SACK && w->sack)
		for (__u32 edge = 0; edge < 8; edge++)
			if (2 + edge * 4 + 4 <= len)
				segment_add(g, at + 2 + edge * 4, w->sack);
	return 0;
}

/* Shifts the segment's numbers into s->to, whose header has already been changed, and
 * writes that to the frame. Returns false if the frame is too short.
 */
__noinline bool syn_shift(struct xdp_md *ctx, struct syn_scratch *s, __u32 sack, __u32 ts_value,
			  __u32 ts_echo)
{
	struct syn_shift w = {.sack = sack, .ts_value = ts_value, .ts_echo = ts_echo};
	struct segment *to;
	__u32 bytes;
	__s64 diff;

	if (!ctx || !s)
		return false;
	to = &s->to;
	bytes = sizeof(to->tcp) + s->in.bytes;
	w.to = to;
	to->bytes = s->in.bytes;
	to->walked = 0;
	__builtin_memcpy(to->options, s->in.options, TCP_OPTIONS_MAX);
	bpf_loop(TCP_OPTIONS_MAX, segment_shift, &w, 0);
	bytes = within(bytes, 64);
	if (bytes > sizeof(to->tcp) + TCP_OPTIONS_MAX)
		return false;
	diff = bpf_csum_diff((__be32 *)&s->in.tcp, bytes, (__be32 *)&to->tcp, bytes, 0);
	if (diff < 0)
		return false;
	to->tcp.check = csum_apply(to->tcp.check, diff);
	return !bpf_xdp_store_bytes(ctx, s->l4, &to->tcp, bytes);
}

/* Translates a client's segment for the backend. */
static __always_inline bool syn_shift_forth(struct xdp_md *ctx, struct syn_scratch *s,
					    const struct syn_flow *f)
{
	if (f->flags & SYN_FLOW_PLAIN)
		return true;
	s->to.tcp = s->in.tcp;
	if (s->in.tcp.ack)
		s->to.tcp.ack_seq = bpf_htonl(bpf_ntohl(s->in.tcp.ack_seq) - f->shift);
	return syn_shift(ctx, s, -f->shift, 0, -f->ts_shift);
}

/* Converts the backend's window to the scale sent to the client. */
static __always_inline __u16 syn_window(const struct syn_flow *f, __u16 window)
{
	__u32 bytes;

	if (!(f->flags & SYN_FLOW_SCALES))
		return window;
	bytes = ((__u32)window << f->scales) >> SYN_OWN_SCALE;
	return bytes > 0xffff ? 0xffff : bytes;
}

/* Translates a backend's segment for the client. */
static __always_inline bool syn_shift_back(struct xdp_md *ctx, struct syn_scratch *s,
					   const struct syn_flow *f)
{
	if (f->flags & SYN_FLOW_PLAIN)
		return true;
	s->to.tcp = s->in.tcp;
	s->to.tcp.seq = bpf_htonl(bpf_ntohl(s->in.tcp.seq) + f->shift);
	s->to.tcp.window = bpf_htons(syn_window(f, bpf_ntohs(s->in.tcp.window)));
	return syn_shift(ctx, s, 0, f->ts_shift, 0);
}

/* Handles a client's packet of such a connection. */
static __always_inline int syn_forth(struct xdp_md *ctx, struct syn_scratch *s,
				     const struct frontend *f, struct flow_ref *r, bool v6)
{
	struct syn_flow *flow = syn_flow_of(r->index, r->tag);
	struct choice ch;
	__be16 own_port;
	enum way way;
	int verdict;

	s->o.index = r->index;
	s->o.tag = r->tag;
	s->o.word = r->word;
	if (!flow)
		return drop(ctx, DROP_SYN_FLOW_LOST);
	if (!(flow->flags & SYN_FLOW_ANSWERED))
		return syn_open_server(ctx, s, f, v6);
	if (!nat_own_port(r->index, r->tag, &own_port))
		return drop(ctx, DROP_FLOW_BUSY);
	verdict = syn_way(ctx, &ch, r->word, s->p.len, &way);
	if (verdict)
		return verdict;
	stateful_touch(r, &s->p, &s->o, true);
	syn_toward(&s->turned, &s->p.t, &ch, own_port, v6);
	if (!syn_shift_forth(ctx, s, flow) || !rewrite(ctx, &s->p, &s->turned, v6))
		return drop(ctx, DROP_NO_HEADROOM);
	verdict = leave_to(ctx, &ch, way, v6);
	if (sent(verdict))
		count(f->id, ch.cpu, s->p.len, false);
	return verdict;
}

/* Computes the shifts from the backend's SYN-ACK. */
static __always_inline void syn_learn(struct syn_scratch *s, struct syn_flow *f)
{
	struct segment *g = &s->in;

	f->shift = f->cookie - bpf_ntohl(g->tcp.seq);
	if (g->timestamps)
		f->ts_shift = f->ts_echo - bpf_ntohl(g->ts_value);
	f->scales = g->syn.scale == SYN_NO_SCALE ? 0 : g->syn.scale;
	barrier();
	f->flags |= SYN_FLOW_ANSWERED;
}

/* Builds the client's replacement for the backend's SYN-ACK: the connection is
 * already open for the client, so this is a window update.
 */
static __always_inline void syn_window_update(struct syn_scratch *s, const struct syn_flow *f)
{
	struct syn_made *m = syn_make(s, TCP_BYTE_ACK);

	m->seq = f->cookie + 1;
	m->ack = f->seq + 1;
	m->window = bpf_ntohs(s->in.tcp.window); /* not scaled in a SYN-ACK */
	if (f->flags & SYN_FLOW_SCALES)
		m->window >>= SYN_OWN_SCALE;
	m->timestamps = f->flags & SYN_FLOW_TIMESTAMPS;
	m->ts_value = f->ts_echo;
	m->ts_echo = f->ts_value;
}

/* Builds the client's replacement for the backend's RST if the backend rejects the
 * connection.
 */
static __always_inline void syn_refused(struct syn_scratch *s, const struct syn_flow *f)
{
	struct syn_made *m = syn_make(s, TCP_BYTE_RST | TCP_BYTE_ACK);

	m->seq = f->cookie + 1;
	m->ack = f->seq + 1;
}

/* The backend's ACK shows an older connection on these ports: resets that (RFC 9293,
 * 3.10.7.3). The client's next packet sends the SYN again.
 */
static __always_inline void syn_clear(struct syn_scratch *s)
{
	syn_make(s, TCP_BYTE_RST)->seq = bpf_ntohl(s->in.tcp.ack_seq);
}

/* Completes the handshake on behalf of the client. */
static __always_inline void syn_complete(struct syn_scratch *s, const struct syn_flow *f)
{
	struct syn_made *m = syn_make(s, TCP_BYTE_ACK);

	m->seq = f->seq + 1;
	m->ack = bpf_ntohl(s->in.tcp.seq) + 1;
	m->window = 0xffff >> SYN_OWN_SCALE;
	m->timestamps = s->in.timestamps;
	m->ts_value = f->ts_value;
	m->ts_echo = bpf_ntohl(s->in.ts_value);
}

/* The handling of a backend's packet. */
enum syn_back {
	SYN_BACK_SHIFTED,  /* forward it with shifted numbers */
	SYN_BACK_BUILT,	   /* send another segment, s->made, instead */
	SYN_BACK_ANSWERED, /* answer the backend with s->made */
};

static __always_inline enum syn_back syn_judge_back(struct syn_scratch *s, struct syn_flow *f)
{
	const struct tcphdr *tcp = &s->in.tcp;
	bool accepts = tcp->syn && tcp->ack, answered = f->flags & SYN_FLOW_ANSWERED;

	if (accepts && bpf_ntohl(tcp->ack_seq) != f->seq + 1) {
		/* To another SYN, sent by the client itself: nothing is translated. */
		f->flags |= SYN_FLOW_PLAIN | SYN_FLOW_ANSWERED;
		return SYN_BACK_SHIFTED;
	}
	if (accepts) {
		segment_read(s);
		if (answered) {
			syn_complete(s, f);
			return SYN_BACK_ANSWERED;
		}
		syn_learn(s, f);
		syn_window_update(s, f);
		return SYN_BACK_BUILT;
	}
	if (answered)
		return SYN_BACK_SHIFTED;
	if (tcp->rst) {
		syn_refused(s, f);
		return SYN_BACK_BUILT;
	}
	syn_clear(s);
	return SYN_BACK_ANSWERED;
}

/* Sends a backend's packet, or the segment built in its place, to the client.
 * s->turned is its tuple.
 */
static __always_inline int syn_leave_back(struct xdp_md *ctx, struct syn_scratch *s,
					  struct flow_ref *r, const struct flow_data *data,
					  const struct syn_flow *f, bool built, bool v6)
{
	enum way way =
		nat_way_back(ctx, data, &s->turned, r->index, built ? SYN_OUT_MAX : s->p.len, v6);
	bool ok;

	if (way == WAY_TOO_BIG && !built)
		return TO_SLOW_PATH_TOO_BIG;
	if (way_leads_nowhere(way))
		return drop_way(ctx, way);
	if (built)
		ok = syn_put(ctx, s, v6);
	else
		ok = syn_shift_back(ctx, s, f) && rewrite(ctx, &s->p, &s->turned, v6);
	if (!ok)
		return drop(ctx, DROP_NO_HEADROOM);
	return leave_by(ctx, data->macs, data->egress & 0xffffff, way, v6);
}

/* Handles a backend's packet of such a connection, or returns NAT_NO_ANSWER. */
static __always_inline int syn_back(struct xdp_md *ctx, struct syn_scratch *s, bool v6)
{
	struct tuple *to = &s->turned;
	__u32 now = flow_now();
	struct flow_data *data;
	struct syn_flow *flow;
	enum syn_back back;
	struct flow_ref r;

	data = nat_find_answer(&r, &s->p, SYN_FLOW_PROTO, now, v6);
	if (!data)
		return NAT_NO_ANSWER;
	*to = s->p.t;
	to->src = data->vip;
	to->dst = data->client;
	to->sport = data->vip_port;
	to->dport = data->client_port;
	if (!flow_holds(&r))
		return NAT_NO_ANSWER;
	if (s->p.malformed)
		return drop(ctx, DROP_MALFORMED);
	if (s->p.ttl <= 1)
		return drop(ctx, DROP_TTL_EXPIRED);
	flow = syn_flow_of(r.index, r.tag);
	if (!flow || !segment_load(ctx, &s->in, s->l4))
		return drop(ctx, DROP_SYN_FLOW_LOST);
	flow_touch_answer(&r, &s->p, now);
	back = syn_judge_back(s, flow);
	if (back == SYN_BACK_ANSWERED)
		return syn_answer(ctx, s, v6);
	return syn_leave_back(ctx, s, &r, data, flow, back == SYN_BACK_BUILT, v6);
}

__noinline int syn_back_v4(struct xdp_md *ctx, struct syn_scratch *s)
{
	return ctx && s ? syn_back(ctx, s, false) : XDP_ABORTED;
}

__noinline int syn_back_v6(struct xdp_md *ctx, struct syn_scratch *s)
{
	return ctx && s ? syn_back(ctx, s, true) : XDP_ABORTED;
}

#endif
