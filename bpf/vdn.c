/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Isolation of virtually dedicated networks on a node, at tc. A slice is one such
 * network:
 *
 *      pod's namespace                        node's namespace
 *   pod ──► pod_out ── macvlan ──┬──────────► uplink_out ──► HTB ──► wire
 *   pod ◄── pod_in ◄── macvlan ◄─┴─ (bridge)  uplink_in ◄──────────── wire
 *
 * Pods on one node communicate in the macvlan bridge, without the uplink. So
 * identity, permissions and rate are enforced at the pod's own device, with separate
 * programs per pod that know its identity. At the uplink, slices share its rate:
 * uplink_out selects the HTB class of a packet's slice, and repeats the check of the
 * pod's device, for packets sent before a pod has its programs. A gateway checks both
 * directions. Packets that bypass the programs at a pod's device are dropped after it
 * (vdn/origin.h): by uplink_out, by uplink_in, which also sees packets that macvlan
 * delivers between pods, and by port_in at the node's end of a veth.
 */
#include <linux/pkt_cls.h>

#include "vdn/maps.h"
#include "vdn/neighbor.h"
#include "vdn/pod.h"
#include "vdn/uplink.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int pod_out(struct __sk_buff *skb)
{
	return pod_pass(skb, POD_SENDS, pod_may_send(skb));
}

SEC("tc")
int pod_in(struct __sk_buff *skb)
{
	return pod_pass(skb, POD_RECEIVES, pod_may_receive(skb));
}

SEC("tc")
int uplink_out(struct __sk_buff *skb)
{
	return uplink(skb, true);
}

SEC("tc")
int uplink_in(struct __sk_buff *skb)
{
	return uplink(skb, false);
}

SEC("tc")
int port_in(struct __sk_buff *skb)
{
	return port(skb);
}
