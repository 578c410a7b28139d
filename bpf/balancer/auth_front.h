/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Builds lists with an authentication tag (auth.h) and the headers that carry them in
 * memory: the counterpart of tunnel.h, gue.h and chain.h, which write directly into a
 * packet.
 */
#ifndef FAIRLEAD_BALANCER_AUTH_FRONT_H
#define FAIRLEAD_BALANCER_AUTH_FRONT_H

#include "auth.h"
#include "chain.h"
#include "csum.h"
#include "gue.h"
#include "egress.h"

#define TUNNEL_TTL 64

/* Parameters of a tunnel other than its endpoint. */
struct tunnelling {
	__u32 hash;
	enum way way;
	__u16 len; /* of the packet */
	__u8 tos;
	bool gue;
	bool inner6;
};

/* Sets the packet that a tag covers: its addresses and, unless it is a fragment, its
 * ports.
 */
static __always_inline void auth_packet(const struct addr *src, const struct addr *dst,
					const struct packet *whole)
{
	struct auth_scratch *s = auth_scratch_get();

	if (!s)
		return;
	addr_copy_aligned(&s->inner.src, src);
	addr_copy_aligned(&s->inner.dst, dst);
	s->inner.sport = whole ? whole->t.sport : 0;
	s->inner.dport = whole ? whole->t.dport : 0;
	s->inner.proto = whole ? whole->t.proto : 0;
}

/* Returns the number of bytes before a packet in a tunnel. */
static __always_inline __u32 auth_tunnel_bytes(const struct chain *chain, bool gue, bool outer6)
{
	__u32 n = chain_length(chain);
	__u32 header = outer6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (!gue)
		return header + option_bytes_tagged(n, outer6);
	return header + sizeof(struct udphdr) + sizeof(struct gue) +
	       gue_list_bytes_of(n, true, outer6);
}

/* Writes the list in s->list, a tag and zeros at a constant offset in s->front. */
static __always_inline void auth_put_tagged(struct auth_scratch *s, __u32 at, __u32 n, bool v6)
{
	__u64 tag = auth_tag(auth_keys_at, 0);
	__u32 end = n * ENDPOINT_SIZE(v6);
	__u8 *to = s->front + at;

	if (end > AUTH_LIST_MAX)
		return;
	__builtin_memcpy(to, s->list, v6 ? 96 : 40);
	to += end;
	__builtin_memcpy(to, &tag, sizeof(tag));
	__builtin_memset(to + sizeof(tag), 0, 8);
}

/* Writes the IPv6 option around such a list, at a constant offset in s->front. */
static __always_inline void auth_put_option6(struct auth_scratch *s, __u32 at, __u32 n, __u8 next)
{
	__u32 listed = n * ENDPOINT6_SIZE + AUTH_TAG_SIZE;
	__u32 bytes = option_bytes_tagged(n, true), pad = bytes - OPTION6_HEAD - listed;
	__u8 *to = s->front + at;

	to[0] = next;
	to[1] = bytes / 8 - 1;
	to[2] = OPTION6_TYPE;
	to[3] = listed;
	if (pad < 2 || listed > AUTH_LIST_MAX + AUTH_TAG_SIZE)
		return;
	to += OPTION6_HEAD + listed;
	to[0] = OPTION6_PADN;
	to[1] = pad - 2;
}

static __always_inline void auth_put_option4(struct auth_scratch *s, __u32 at, __u32 n)
{
	s->front[at] = OPTION4_TYPE;
	s->front[at + 1] = OPTION4_HEAD + n * ENDPOINT4_SIZE + AUTH_TAG_SIZE;
}

/* Sums bytes of s->front, a multiple of four, as 16-bit words. */
static __always_inline __u64 auth_sum(struct auth_scratch *s, __u32 at, __u32 bytes)
{
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)(s->front + at), within(bytes, 64), 0);

	return sum < 0 ? 0 : sum;
}

static __always_inline void auth_put_gue(struct auth_scratch *s, const struct tunnelling *t,
					 __u32 at, __u32 n, __u32 bytes, bool outer6)
{
	struct gue_list *list = (struct gue_list *)(s->front + at + 12);
	__be32 *word = (__be32 *)(s->front + at);
	__u8 proto = t->inner6 ? IPPROTO_IPV6 : IPPROTO_IPIP;

	word[0] = bpf_htonl((GUE_FIRST_PORT + (t->hash & 0x3fff)) << 16 | set.gue_port);
	word[1] = bpf_htonl((t->len + bytes) << 16);
	word[2] = bpf_htonl(gue_list_bytes_of(n, true, outer6) / 4 << 24 | proto << 16);
	list->magic = OPTION4_TYPE;
	list->n = n;
	list->tag = GUE_TAG_WORDS;
	list->zero = 0;
}

static __always_inline void auth_front_v4(struct auth_scratch *s, const struct tunnelling *t,
					  __be32 dst, __u32 n, __u32 bytes)
{
	const __u32 header = sizeof(struct iphdr);
	__u8 proto = t->gue ? IPPROTO_UDP : t->inner6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__u8 ttl = t->way == WAY_KERNEL ? TUNNEL_TTL : TUNNEL_TTL - 1;
	__be32 *word = (__be32 *)s->front;
	__u32 ihl = header;
	__u64 sum = 0;

	if (t->gue) {
		auth_put_tagged(s, header + 16, n, false);
		auth_put_gue(s, t, header, n, bytes - header, false);
	} else {
		auth_put_tagged(s, header + OPTION4_HEAD, n, false);
		auth_put_option4(s, header, n);
		ihl = bytes;
		sum = auth_sum(s, header, bytes - header);
	}
	word[0] = bpf_htonl(4u << 28 | (ihl / 4) << 24 | t->tos << 16 | (t->len + bytes));
	word[1] = bpf_htonl(0x4000); /* RFC 6864, 4.1 */
	word[2] = bpf_htonl(ttl << 24 | proto << 16);
	word[3] = addr_to_v4(&set.own4);
	word[4] = dst;
	sum += (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	word[2] |= (__u32)(__u16)~csum_fold(sum) << 16;
}

static __always_inline void auth_front_v6(struct auth_scratch *s, const struct tunnelling *t,
					  const struct addr *dst, __u32 n, __u32 bytes)
{
	const __u32 header = sizeof(struct ipv6hdr);
	__u8 proto = t->inner6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__u8 ttl = t->way == WAY_KERNEL ? TUNNEL_TTL : TUNNEL_TTL - 1;
	struct ipv6hdr *ip = (struct ipv6hdr *)s->front;

	if (t->gue) {
		auth_put_tagged(s, header + 16, n, true);
		auth_put_gue(s, t, header, n, bytes - header, true);
	} else {
		auth_put_tagged(s, header + OPTION6_HEAD, n, true);
		auth_put_option6(s, header, n, proto);
	}
	*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)t->tos << 20 | (t->hash & 0xfffff));
	ip->payload_len = bpf_htons(t->len + bytes - header);
	ip->nexthdr = t->gue ? IPPROTO_UDP : IPPROTO_DSTOPTS;
	ip->hop_limit = ttl;
	addr_copy(&ip->saddr, &set.own6);
	addr_copy(&ip->daddr, dst);
}

/* Builds all headers that precede the packet set by auth_packet, in front. Returns
 * their size, or 0 on failure.
 */
__noinline __u32 auth_front(const struct tunnelling *t, const struct server *server,
			    const struct chain *chain)
{
	struct auth_scratch *s = auth_scratch_get();
	__u32 n = chain_length(chain), bytes;
	bool outer6;

	if (!s || !t || !server)
		return 0;
	outer6 = !addr_is_v4(&server->addr);
	bytes = auth_tunnel_bytes(chain, t->gue, outer6);
	if (chain)
		__builtin_memcpy(s->list, chain->bytes, CHAIN_BYTES);
	if (auth_cover(outer6 ? &set.own6 : &set.own4, &server->addr,
		       t->gue ? AUTH_GUE : AUTH_OUTER, n))
		return 0;
	if (outer6)
		auth_front_v6(s, t, &server->addr, n, bytes);
	else
		auth_front_v4(s, t, addr_to_v4(&server->addr), n, bytes);
	return bytes;
}

/* Number of chain endpoints that fit the option in a packet's own header. */
#define AUTH_OWN4_MAX 4

static __always_inline __u32 auth_own_chain(const struct chain *chain, bool v6)
{
	__u32 n = chain_length(chain);

	return v6 || n <= AUTH_OWN4_MAX ? n : AUTH_OWN4_MAX;
}

static __always_inline __u32 auth_own_bytes(const struct chain *chain, bool v6)
{
	return option_bytes_tagged(1 + auth_own_chain(chain, v6), v6);
}

/* Copies the chain endpoints that fit. For UDP the last endpoint receives packets of
 * flows that no backend knows, so it is never cut off.
 */
static __always_inline void auth_own_list(struct auth_scratch *s, const struct chain *chain,
					  bool last)
{
	__builtin_memcpy(s->list, chain->bytes, CHAIN_BYTES);
	if (last && !chain->v6 && chain_length(chain) > AUTH_OWN4_MAX)
		__builtin_memcpy(s->list + (AUTH_OWN4_MAX - 1) * ENDPOINT4_SIZE,
				 s->list + AUTH_OWN4_MAX * ENDPOINT4_SIZE, ENDPOINT4_SIZE);
}

/* Builds the option in front for the own header of the packet set by auth_packet,
 * originally addressed to p's VIP.
 */
__noinline int auth_own(const struct packet *p, const struct chain *chain)
{
	struct auth_scratch *s = auth_scratch_get();
	__u32 n;
	bool v6;

	if (!s || !p)
		return -1;
	v6 = !addr_is_v4(&p->t.dst);
	n = 1 + auth_own_chain(chain, v6);
	s->vip.addr = p->t.dst;
	s->vip.port = p->t.dport;
	if (chain)
		auth_own_list(s, chain, p->t.proto == IPPROTO_UDP);
	if (auth_cover(&p->t.src, &p->t.dst, AUTH_OWN, n))
		return -1;
	if (v6) {
		auth_put_tagged(s, OPTION6_HEAD + ENDPOINT6_SIZE, n - 1, true);
		__builtin_memcpy(s->front + OPTION6_HEAD, &p->t.dst, sizeof(p->t.dst));
		__builtin_memcpy(s->front + OPTION6_HEAD + sizeof(p->t.dst), &p->t.dport,
				 sizeof(p->t.dport));
		auth_put_option6(s, 0, n, p->t.proto);
		return 0;
	}
	auth_put_tagged(s, OPTION4_HEAD + ENDPOINT4_SIZE, n - 1, false);
	__builtin_memcpy(s->front + OPTION4_HEAD, &p->t.dst.word[3], 4);
	__builtin_memcpy(s->front + OPTION4_HEAD + 4, &p->t.dport, sizeof(p->t.dport));
	auth_put_option4(s, 0, n);
	return 0;
}

/* Writes bytes of front into the frame. */
static __always_inline bool auth_store(struct xdp_md *ctx, __u32 at, __u32 bytes)
{
	struct auth_scratch *s = auth_scratch_get();

	bytes = within(bytes, 256);
	return s && bytes <= AUTH_FRONT && !bpf_xdp_store_bytes(ctx, at, s->front, bytes);
}

#endif
