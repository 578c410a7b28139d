/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The DSR agent: direct server return at tc on the backends' node. A backend knows
 * nothing of its VIP:
 *
 *                 uplink                         veth of a pod
 *   balancer ───► to_host ───► kernel ──────────► to_server ───► backend
 *   client  ◄──── from_host ◄─ kernel   ◄──────── from_server ◄─ backend
 *      ▲                                               │
 *      └─────────────── straight out ◄─────────────────┘
 *
 * A backend in a pod has to_server where packets leave toward it and from_server
 * where its packets arrive. to_host and from_host do the same for a backend on the
 * node itself. With dsr-nat and dr, to_host also passes packets directly to a pod's
 * device, bypassing the node's firewall, because the replies bypass it too. On nodes
 * with only pod backends, from_node replaces from_host, for the ICMP errors that the
 * node's own kernel sends to clients about packets to its pods.
 *
 * All other packets continue unmodified, also to other programs at the same hook: the
 * verdict is TC_ACT_UNSPEC ("no opinion").
 */
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#include "dsr/reply.h"
#include "dsr/maps.h"
#include "dsr/ingress.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int to_server(struct __sk_buff *skb)
{
	return toward(skb, SERVER_PLACE_POD);
}

SEC("tc")
int from_server(struct __sk_buff *skb)
{
	return back(skb, SERVER_PLACE_POD);
}

SEC("tc")
int to_host(struct __sk_buff *skb)
{
	/* For another host on this network, or for a device on top of this one. */
	if (skb->pkt_type == PACKET_OTHERHOST)
		return TC_ACT_UNSPEC;
	return toward(skb, SERVER_PLACE_HOST);
}

SEC("tc")
int from_host(struct __sk_buff *skb)
{
	return back(skb, SERVER_PLACE_HOST);
}

SEC("tc")
int from_node(struct __sk_buff *skb)
{
	return node_back(skb);
}

/* Stores the flow given by the packet's bytes, unless it is known. The agent uses
 * this to migrate flows from another layout.
 */
SEC("tc")
int adopt(struct __sk_buff *skb)
{
	struct server_flow f;
	struct tuple t = {};

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &f, sizeof(f)))
		return TC_ACT_SHOT;
	t.src = f.client;
	t.dst = f.server;
	t.sport = f.client_port;
	t.dport = f.server_port;
	t.proto = f.proto;
	return known(&t) || remember_flow(&f, &t) ? TC_ACT_OK : TC_ACT_SHOT;
}
