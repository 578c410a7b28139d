/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The slow path program's state of the current packet. Headers may be anywhere, even
 * beyond the first buffer. They are read and written by offset with helpers that
 * check it, and everything that does not fit the stack is here.
 */
#ifndef FAIRLEAD_BALANCER_SCRATCH_H
#define FAIRLEAD_BALANCER_SCRATCH_H

#include "choose.h"
#include "egress.h"
#include "maps.h"

/* An Ethernet header with two VLAN tags. */
#define L2_MAX (sizeof(struct ethhdr) + 2 * 4)
#define OPTIONS4_MAX 40
/* At least the longest header that any forwarding mode puts before a packet. */
#define FRONT_MAX 192
#define FRAGMENTS_REJECTED 64 /* a power of two */

union ip_header {
	struct iphdr v4;
	struct ipv6hdr v6;
};

/* An IP packet in the frame: the frame's own, or the one that an ICMP error quotes.
 * Offsets are from the start of the frame.
 */
struct spot {
	union ip_header ip; /* as received, without options */
	__u32 l3;
	__u32 l4;	/* after options and extension headers */
	__u32 end;	/* end of the packet's available bytes */
	__u32 fragment; /* IPv6: the fragment header's offset, 0: none */
	__u32 id;	/* of a fragment's datagram */
	__u32 offset;	/* of a fragment in its datagram, bytes */
	__u8 proto;
	__u8 more;	   /* more fragments follow */
	__u8 source_route; /* the sender selects the routers */
	__u8 broken;	   /* inconsistent lengths */
};

struct rare {
	struct packet p;    /* the flow; for an ICMP error, the flow it is about */
	struct addr sender; /* of the frame's own packet */
	struct addr vip;    /* the destination of the frame's own packet */
	__u8 is_vip;	    /* whether it is a VIP */
	struct spot own;
	struct spot quoted;
	struct tuple from; /* a spot's old and new tuple */
	struct tuple to;
	struct pick pick;
	struct bpf_fib_lookup fib;
	__u64 diff;	/* of all rewritten bytes */
	__u32 ingress;	/* interface index */
	__u32 frame;	/* bytes, in all buffers */
	__u32 mtu;	/* of the path */
	__u32 walked;	/* bytes, of options or summed data */
	__s32 more;	/* bytes that the forwarding mode adds to the packet */
	__u8 v6;	/* the packet's family */
	__u8 tagged;	/* VLAN */
	__u8 is_error;	/* ICMP, about another packet */
	__u8 is_answer; /* a backend's reply with nat or fullnat */
	__u8 answered;	/* the transmitted packet is for the sender */
	__u8 icmp_type;
	__u8 gue;      /* the tunnel is GUE, not IP-in-IP */
	__u8 handed;   /* from another load balancer: PACKET_ASK or PACKET_LAST */
	__u8 admitted; /* PACKET_ADMITTED */
	__u8 proxied;  /* the flow has translated sequence numbers: syn_proxy.h */
	__u8 no_port;  /* rejected with DROP_NO_PORT */
	__u8 payload;  /* this and the next two are as in struct opening */
	__u32 seq;
	__u32 ack;
	__u32 shift; /* from the sequence number in a quoted TCP header to its sender's */
	__u8 l2[24];
	__u8 options[OPTIONS4_MAX]; /* IPv4, as received */
	__u8 front[FRONT_MAX];	    /* bytes to be written */
	/* Of all packets: datagrams with a rejected first fragment (fragment.h). */
	__u64 rejected[FRAGMENTS_REJECTED];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct rare)); /* no type: Go does not use it */
} slow_scratch SEC(".maps");

/* Not an XDP verdict: continue with the next step. */
#define RARE_GO_ON (-1)

#endif
