/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What keeps virtually dedicated networks apart on a node, at tc:
 *
 *      pod's namespace                        node's namespace
 *   pod ──► pod_out ── macvlan ──┬──────────► uplink_out ──► HTB ──► wire
 *   pod ◄── pod_in ◄── macvlan ◄─┴─ (bridge)  uplink_in ◄──────────── wire
 *
 * Pods of one node meet in the macvlan bridge, past the uplink: so who is who,
 * who may talk to whom and how fast is checked at the pod's own device, where
 * each pod has programs of its own that know who it is. At the uplink slices share
 * its rate: uplink_out tells HTB whose a packet is, and checks what a pod's device
 * let through once more, for what comes before a pod has its programs. A gateway
 * checks both ways. What skips the programs at a pod's device is dropped behind it
 * (vdn/origin.h): by uplink_out, by uplink_in, which also sees what macvlan hands from
 * pod to pod, and by port_in at the node's end of a veth.
 */
#include <linux/pkt_cls.h>

#include "vdn/maps.h"
#include "vdn/neighbour.h"
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
