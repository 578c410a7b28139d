/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the rare program knows of the packet in its hands. Its headers lie
 * anywhere, perhaps beyond the first buffer: they are read and written by
 * offset, with the helpers that check it, and all that does not fit on the
 * stack is here.
 */
#ifndef FAIRLEAD_BALANCER_SCRATCH_H
#define FAIRLEAD_BALANCER_SCRATCH_H

#include "choose.h"
#include "egress.h"
#include "maps.h"

/* An Ethernet header with two VLAN tags. */
#define L2_MAX (sizeof(struct ethhdr) + 2 * 4)
#define OPTIONS4_MAX 40
/* The longest header that a method puts before a packet, and to spare. */
#define FRONT_MAX 192

union ip_header {
	struct iphdr v4;
	struct ipv6hdr v6;
};

/* An IP packet in the frame: the frame's own, or the one that an ICMP error
 * quotes. Offsets are the frame's.
 */
struct spot {
	union ip_header ip; /* as it came, without options */
	__u32 l3;
	__u32 l4;	/* behind options and extension headers */
	__u32 end;	/* of what there is of the packet */
	__u32 fragment; /* IPv6: of the fragment header, 0: none */
	__u32 id;	/* of a fragment's datagram */
	__u32 offset;	/* of a fragment in its datagram, bytes */
	__u8 proto;
	__u8 more;	   /* fragments to come */
	__u8 source_route; /* the sender says by which routers */
	__u8 broken;	   /* lengths do not fit */
};

struct rare {
	struct packet p;    /* the flow; of an ICMP error, the one that it is about */
	struct addr sender; /* of the frame's own packet */
	struct addr vip;    /* where the frame's own packet is addressed to, */
	__u8 is_vip;	    /* if it is one */
	struct spot own;
	struct spot quoted;
	struct tuple from; /* what a spot says, and is to say */
	struct tuple to;
	struct pick pick;
	struct bpf_fib_lookup fib;
	__u64 diff;	/* of what was rewritten */
	__u32 ingress;	/* interface, by its index */
	__u32 frame;	/* bytes, in all buffers */
	__u32 mtu;	/* of the way */
	__u32 walked;	/* bytes, of options or what is summed */
	__s32 more;	/* bytes that the method adds to the packet */
	__u8 v6;	/* the packet's family */
	__u8 tagged;	/* VLAN */
	__u8 is_error;	/* ICMP, about another packet */
	__u8 is_answer; /* of a server's, to nat or fullnat */
	__u8 answered;	/* what leaves is for the sender */
	__u8 icmp_type;
	__u8 gue;      /* the tunnel it goes through is one */
	__u8 handed;   /* by another balancer: PACKET_ASK or PACKET_LAST */
	__u8 admitted; /* PACKET_ADMITTED */
	__u8 proxied;  /* a flow whose sequence numbers are translated: syn_proxy.h */
	__u8 payload;  /* as in struct opening, as are */
	__u32 seq;
	__u32 ack;
	__u32 shift; /* from the sequence number in a quoted TCP header to its sender's */
	__u8 l2[24];
	__u8 options[OPTIONS4_MAX]; /* IPv4, as they came */
	__u8 front[FRONT_MAX];	    /* what is to be written */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct rare)); /* no type: Go need not know it */
} slow_scratch SEC(".maps");

/* What a step returns where the next one is to go on: no XDP verdict. */
#define RARE_GO_ON (-1)

#endif
