package packetfuzz

import (
	"encoding/binary"
	"strconv"
)

// Verdicts of programs at tc (linux/pkt_cls.h).
const (
	ActUnspec   = -1
	ActShot     = 2
	ActRedirect = 7
)

// SKBContext is what a test run takes of a struct __sk_buff for a frame that is met
// at one device and came in by another, if by any. It is long enough for what comes
// out.
func SKBContext(ifindex, ingress uint32) []byte {
	b := make([]byte, 192)
	binary.NativeEndian.PutUint32(b[36:], ingress)
	binary.NativeEndian.PutUint32(b[40:], ifindex)
	return b
}

// Priority is skb->priority in such a context.
func Priority(context []byte) uint32 { return binary.NativeEndian.Uint32(context[32:]) }

// SetPriority sets it.
func SetPriority(context []byte, p uint32) { binary.NativeEndian.PutUint32(context[32:], p) }

// CanRun says that the kernel takes a frame for a test run at tc, which must have an IP
// header if it says so (net/bpf/test_run.c).
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

// VerdictName gives a verdict's name, for people.
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
