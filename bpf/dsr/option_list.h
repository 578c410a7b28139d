/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Removes endpoints from a packet's list: all of them before the backend receives the
 * packet, or those already tried before it goes to the next. A list only gets
 * shorter, so no packet loops.
 */
#ifndef FAIRLEAD_DSR_OPTION_LIST_H
#define FAIRLEAD_DSR_OPTION_LIST_H

#include "auth.h"
#include "common.h"
#include "csum.h"
#include "skb/read.h"
#include "skb/rewrite.h"
#include "scratch.h"

/* Reads the i-th endpoint of the list whose first one is at the given offset. */
static __always_inline long read_endpoint(struct __sk_buff *skb, __u32 at, __u32 i, bool v6,
					  struct endpoint *e)
{
	struct {
		__be32 addr[4];
		__be16 port;
	} raw = {};
	long err;

	__builtin_memset(e, 0, sizeof(*e));
	if (v6) {
		err = bpf_skb_load_bytes(skb, at + i * ENDPOINT6_SIZE, &raw, ENDPOINT6_SIZE);
		__builtin_memcpy(e->addr.word, raw.addr, sizeof(raw.addr));
		e->port = raw.port;
		return err;
	}
	err = bpf_skb_load_bytes(skb, at + i * ENDPOINT4_SIZE, &raw, ENDPOINT4_SIZE);
	addr_from_v4(&e->addr, raw.addr[0]);
	e->port = *(__be16 *)&raw.addr[1];
	return err;
}

/* Reads or writes a number of bytes, which the verifier must see to be between 1 and
 * max.
 */
static __always_inline long load_some(struct __sk_buff *skb, __u32 at, void *to, __u64 bytes,
				      __u32 max)
{
	__u64 last = bytes - 1;

	barrier_var(last);
	return last < max ? bpf_skb_load_bytes(skb, at, to, last + 1) : -1;
}

static __always_inline long store_some(struct __sk_buff *skb, __u32 at, const void *from,
				       __u64 bytes, __u32 max)
{
	__u64 last = bytes - 1;

	barrier_var(last);
	return last < max ? bpf_skb_store_bytes(skb, at, from, last + 1, BPF_F_RECOMPUTE_CSUM) : -1;
}

/* Sets the frontend whose backends next_server accepts: that of a row, for a packet
 * to vip. A packet without ports is a later fragment.
 */
static __always_inline void next_of(struct next *next, const struct endpoint *vip,
				    const struct local_vip *row, __u8 proto, bool ports)
{
	struct local_vip_key *of = &next->of;

	__builtin_memset(of, 0, sizeof(*of));
	addr_copy_aligned(&of->vip, &vip->addr);
	next->port = vip->port;
	next->range = row->last;
	next->listed_port = ports && row->method != SERVER_METHOD_TUNNEL;
	of->vip_port = ports && !row->last ? vip->port : 0;
	of->proto = proto;
}

/* Reports whether next->to is a backend of the frontend: anyone can send a packet
 * with a list.
 */
static __noinline bool next_is_known(struct next *next)
{
	struct local_vip_key *of = &next->of;
	struct next_server *server;
	__u8 proto;
	__be16 port;

	if (!next_servers_known)
		return true;
	addr_copy_aligned(&of->server, &next->to.addr);
	of->server_port = next->listed_port && !next->range ? next->to.port : 0;
	server = bpf_map_lookup_elem(&next_servers, of);
	if (!server && next->range) {
		proto = of->proto;
		of->proto = 0;
		server = bpf_map_lookup_elem(&next_servers, of);
		of->proto = proto;
	}
	if (!server || !next->listed_port || !next->range)
		return server;
	port = server->port ?: next->port;
	if (!next->to.port)
		next->to.port = port;
	return next->to.port == port;
}

/* Finds the first backend in the list that differs from self, whose port is ignored
 * if 0, and that belongs to next_of's frontend, in scratch()->next. Returns false if
 * no other backend follows. (Linux 6.1 accepts no map key in an argument's
 * memory.)
 */
__noinline bool next_server(struct __sk_buff *skb, const struct list *l,
			    const struct endpoint *self)
{
	struct scratch *s = scratch();
	struct next *next;
	struct endpoint *e;

	if (!l || !self || !s)
		return false;
	next = &s->next;
	e = &next->to;
	next->at = l->first;
	for (int turn = 0; turn < ENDPOINTS_MAX && next->at < l->n; turn++, next->at++) {
		if (read_endpoint(skb, l->at, next->at, l->v6, e))
			return false;
		if (addr_equal(&e->addr, &self->addr) && (!self->port || self->port == e->port))
			continue;
		if (next_is_known(next))
			return true;
		count(SERVER_COUNTER_SKIPPED_UNKNOWN_SERVER);
	}
	return false;
}

/* Reads the rest of the list: its first keep endpoints, and those from resume on. */
static __always_inline long read_rest(struct __sk_buff *skb, const struct view *v, __u32 keep,
				      __u32 resume, struct option_bytes *o)
{
	__u64 size = ENDPOINT_SIZE(v->v6), to = OPTION_HEAD(v->v6);
	__u64 bytes = (v->n - resume) * size;
	__u32 at = list_at(v);

	barrier_var(to); /* an offset, not a bit of the address */
	if (keep) {
		if (to > OPTION6_HEAD || load_some(skb, at, o->b + to, size, ENDPOINT6_SIZE))
			return -1;
		to += size;
	}
	if (bytes == 0)
		return 0;
	if (to > OPTION6_HEAD + ENDPOINT6_SIZE)
		return -1;
	return load_some(skb, at + resume * size, o->b + to, bytes,
			 (ENDPOINTS_MAX - 1) * ENDPOINT6_SIZE);
}

/* Writes the framing of n endpoints, and the tag after them if there is one. */
static __always_inline void build_head(struct option_bytes *o, const struct view *v, __u32 n,
				       const __u64 *tag)
{
	__u32 bytes = n * ENDPOINT_SIZE(v->v6) + (tag ? AUTH_TAG_SIZE : 0);
	__u64 end = OPTION6_HEAD + bytes;
	__u64 at = OPTION_HEAD(v->v6) + n * ENDPOINT_SIZE(v->v6);
	__u32 pad;
	__u8 *to;

	barrier_var(at);
	if (tag && at <= sizeof(o->b) - AUTH_TAG_SIZE)
		__builtin_memcpy(o->b + at, tag, AUTH_TAG_SIZE);
	if (!v->v6) {
		o->b[0] = OPTION4_TYPE;
		o->b[1] = OPTION4_HEAD + bytes;
		return;
	}
	pad = option_bytes_of(n, tag, true) - end;
	o->b[0] = v->next;
	o->b[1] = option_bytes_of(n, tag, true) / 8 - 1;
	o->b[2] = OPTION6_TYPE;
	o->b[3] = bytes;
	barrier_var(end); /* one bounded number for both bytes */
	if (pad >= 2 && end < sizeof(o->b) - 1) {
		to = o->b + end;
		to[0] = OPTION6_PADN;
		to[1] = pad - 2;
	}
}

/* Returns the change of the IPv4 header checksum when the list at its beginning, with
 * `before` bytes, is replaced by that in s->option.
 */
static __always_inline __s64 list_diff(struct __sk_buff *skb, const struct view *v,
				       struct scratch *s, __u32 before, __u32 after)
{
	__u32 at = v->l3 + sizeof(struct iphdr);

	if (!before)
		return 0;
	if (load_some(skb, at, s->head, before, sizeof(s->head)) || after > sizeof(s->option))
		return -1;
	return bpf_csum_diff(s->head, within(before, 64) & ~3, (__be32 *)&s->option, after & ~3, 0);
}

/* Updates the lengths and checksum of the IPv4 header of a packet that got shorter.
 * bytes includes removed options of its header, whose contribution to the checksum is
 * diff. The checksum is updated incrementally, because a header that arrived broken
 * must not leave valid.
 */
static __always_inline long shrink_ipv4(struct __sk_buff *skb, const struct view *v, __u32 bytes,
					__u32 options, __s64 diff)
{
	struct iphdr ip;
	__be32 *first = (__be32 *)&ip, was;

	if (diff < 0 || bpf_skb_load_bytes(skb, v->l3, &ip, sizeof(ip)))
		return -1;
	was = *first;
	ip.ihl -= options / 4;
	if (ip.tot_len) /* BIG TCP: no length before or after */
		ip.tot_len = bpf_htons(bpf_ntohs(ip.tot_len) - bytes);
	ip.check = csum_apply(ip.check, csum_diff4(diff, was, *first));
	return bpf_skb_store_bytes(skb, v->l3, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline long shrink_ipv6(struct __sk_buff *skb, const struct view *v,
					struct scratch *s, __u32 bytes, bool gone)
{
	struct ipv6hdr *ip = (struct ipv6hdr *)s->head;
	long err = bpf_skb_load_bytes(skb, v->l3, ip, sizeof(*ip));

	if (err)
		return err;
	if (gone)
		ip->nexthdr = v->next;
	if (ip->payload_len)
		ip->payload_len = bpf_htons(bpf_ntohs(ip->payload_len) - bytes);
	return bpf_skb_store_bytes(skb, v->l3, ip, sizeof(*ip), BPF_F_RECOMPUTE_CSUM);
}

/* Keeps of the list in the frame's first IP header the first keep endpoints (0 or 1)
 * and those from resume on, with the tag in scratch if it needs one. The kernel
 * resizes after the fixed header, exactly where the list is.
 */
__noinline long shorten(struct __sk_buff *skb, struct view *v, __u32 keep, __u32 resume)
{
	struct scratch *s = scratch();
	__u32 n, before, after;
	__s64 diff = 0;
	bool tagged;
	long err;

	if (!s || !v || v->n > ENDPOINTS_MAX || resume > v->n)
		return -1;
	__builtin_memset(&s->option, 0, sizeof(s->option));
	n = (keep ? 1 : 0) + v->n - resume;
	tagged = auth_policy && s->retag;
	before = option_bytes_of(v->n, v->flags & VIEW_TAGGED, v->v6);
	after = option_bytes_of(n, tagged, v->v6);
	if (after > before || after > sizeof(s->option))
		return -1;
	if (after && read_rest(skb, v, keep, resume, &s->option))
		return -1;
	build_head(&s->option, v, n, tagged ? &s->tag : NULL);
	if (!v->v6)
		diff = list_diff(skb, v, s, before, after);
	err = bpf_skb_adjust_room(skb, -(__s32)(before - after), BPF_ADJ_ROOM_NET, ROOM_FLAGS);
	if (err)
		return err;
	if (after &&
	    store_some(skb, list_at(v) - OPTION_HEAD(v->v6), &s->option, after, sizeof(s->option)))
		return -1;
	v->n = n;
	v->flags = (v->flags & ~VIEW_TAGGED) | (tagged ? VIEW_TAGGED : 0);
	v->l4 -= before - after;
	return v->v6 ? shrink_ipv6(skb, v, s, before - after, after == 0)
		     : shrink_ipv4(skb, v, before - after, before - after, diff);
}

/* Removes the complete list. */
static __always_inline long strip_list(struct __sk_buff *skb, struct view *v)
{
	return v->n || v->flags & VIEW_TAGGED ? shorten(skb, v, 0, v->n) : 0;
}

/* Keeps of the list in GUE's private data the endpoints from resume on. Everything
 * before the inner packet is rewritten, without a checksum over the packet (RFC 6935
 * allows this for a tunnel in IPv6 too).
 */
__noinline long shorten_gue(struct __sk_buff *skb, const struct view *v, const struct list *l,
			    __u32 resume)
{
	struct scratch *s = scratch();
	__u32 n, bytes, gone, size;
	struct gue_bytes *g;
	bool tagged;
	__u64 end;

	if (!s || !v || !l || l->n > ENDPOINTS_MAX || resume > l->n)
		return -1;
	g = &s->gue;
	__builtin_memset(g, 0, sizeof(*g));
	n = l->n - resume;
	tagged = auth_policy && s->retag;
	bytes = gue_list_bytes_of(n, tagged, l->v6);
	gone = gue_list_bytes_of(l->n, l->tagged, l->v6) - bytes;
	size = n * ENDPOINT_SIZE(l->v6);
	if (bpf_skb_load_bytes(skb, v->l4, g, sizeof(g->udp) + sizeof(g->gue)))
		return -1;
	if (size && load_some(skb, l->at + resume * ENDPOINT_SIZE(l->v6), g->b, size, sizeof(g->b)))
		return -1;
	end = size;
	barrier_var(end); /* else Linux 6.1 does not see that the upper half is zero */
	if (tagged && end <= sizeof(g->b) - AUTH_TAG_SIZE)
		__builtin_memcpy(g->b + end, &s->tag, AUTH_TAG_SIZE);
	g->udp.len = bpf_htons(bpf_ntohs(g->udp.len) - gone);
	g->udp.check = 0;
	g->gue.hlen = bytes / 4;
	g->list.magic = OPTION4_TYPE;
	g->list.n = n;
	g->list.tag = tagged ? GUE_TAG_WORDS : 0;
	size = sizeof(g->udp) + sizeof(g->gue) + bytes;
	if (bpf_skb_adjust_room(skb, -(__s32)gone, BPF_ADJ_ROOM_NET, ROOM_FLAGS) ||
	    store_some(skb, v->l4, g, size, sizeof(*g)))
		return -1;
	return v->v6 ? shrink_ipv6(skb, v, s, gone, false) : shrink_ipv4(skb, v, gone, 0, 0);
}

#endif
