/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The server half of direct return, at tc on the node of the real servers. A
 * server knows nothing of its VIP:
 *
 *                 uplink                         veth of a pod
 *   balancer ───► to_host ───► kernel ──────────► to_server ───► server
 *   client  ◄──── from_host ◄─ kernel   ◄──────── from_server ◄─ server
 *      ▲                                               │
 *      └─────────────── straight out ◄─────────────────┘
 *
 * A server in a pod has to_server where packets leave toward it and
 * from_server where they come from it; to_host and from_host do the same for a
 * server on the node itself. With dsr-nat and dr to_host also hands packets
 * straight to the device of a pod, past the node's firewall, as the answers go
 * past it. Where there are only pods from_node sits in from_host's place, for
 * what the node's own kernel tells clients of packets to its pods.
 * What is not ours goes on untouched, also to other
 * programs at the same hook: the verdict is TC_ACT_UNSPEC, "I have no opinion".
 */
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#include "server/reply.h"
#include "server/maps.h"
#include "server/ingress.h"

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
	/* For another host on this wire, or for a device on top of this one. */
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

/* Remembers the flow that the packet's bytes are, where it is not known: for the
 * agent, which carries flows over from another layout by it.
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
