package packetfuzz

import (
	"encoding/binary"
	"strconv"
)

// Verdicts of tc programs (linux/pkt_cls.h).
const (
	ActUnspec   = -1
	ActShot     = 2
	ActRedirect = 7
)

// SKBContext returns the part of a struct __sk_buff that a test run takes, for a frame at
// one device that arrived on another one, if any.
func SKBContext(ifindex, ingress uint32) []byte {
	b := make([]byte, 44)
	binary.NativeEndian.PutUint32(b[36:], ingress)
	binary.NativeEndian.PutUint32(b[40:], ifindex)
	return b
}

// Priority is skb->priority in such a context.
func Priority(context []byte) uint32 { return binary.NativeEndian.Uint32(context[32:]) }

// SetPriority sets skb->priority in such a context.
func SetPriority(context []byte, p uint32) { binary.NativeEndian.PutUint32(context[32:], p) }

// CanRun reports whether the kernel accepts a frame for a test run at tc: a frame with an
// IP EtherType must have an IP header (net/bpf/test_run.c).
func CanRun(frame []byte) bool {
	switch {
	case len(frame) < 14:
		return false
	case frame[12] == 0x08 && frame[13] == 0:
		return len(frame) >= 14+20
	case frame[12] == 0x86 && frame[13] == 0xdd:
		return len(frame) >= 14+40
	}
	return len(frame) > 14
}

// VerdictName returns the name of a verdict, for messages.
func VerdictName(v int32) string {
	switch v {
	case ActUnspec:
		return "unspec"
	case ActShot:
		return "shot"
	case ActRedirect:
		return "redirect"
	}
	return strconv.Itoa(int(v))
}
