package openvswitch

import (
	"context"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// count is packets and bytes.
type count struct{ packets, bytes uint64 }

// Counters implements enforce.Enforcer: what flows counted, minus what their meters then
// dropped.
func (s *Switch) Counters(ctx context.Context) ([]vdn.Counter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	flows, err := dump(ctx, s, "dump-flows", flowsIn)
	if err != nil {
		return nil, err
	}
	over, err := dump(ctx, s, "meter-stats", droppedIn)
	if err != nil {
		return nil, err
	}
	var all []vdn.Counter
	for slot, a := range slotsOf(s.here(ctx)) {
		c := vdn.Counter{Network: a.Network, Attachment: a.ID, Device: a.Device, Drops: map[string]uint64{}}
		sends, receives := over[meterSends+slot], over[meterReceives+slot]
		c.SentBytes = flows[cookie{kind: kindSent, number: slot}].bytes - sends.bytes
		c.ReceivedBytes = flows[cookie{kind: kindReceived, number: slot}].bytes - receives.bytes
		for reason, name := range reasons {
			enforce.AddDrops(c, name, flows[cookie{kind: kindDrop, reason: reason, number: slot}].packets)
		}
		enforce.AddDrops(c, enforce.OverRate, sends.packets+receives.packets)
		all = append(all, c)
	}
	for _, slice := range s.plan.Slices {
		id := uint32(slice.ID)
		c := vdn.Counter{Network: slice.Name, Device: s.cfg.Bridge, Drops: map[string]uint64{}}
		c.SentBytes = flows[cookie{kind: kindSlice, ofSlice: true, number: id}].bytes - over[id].bytes
		for reason, name := range reasons {
			enforce.AddDrops(c, name, flows[cookie{kind: kindDrop, reason: reason, ofSlice: true, number: id}].packets)
		}
		enforce.AddDrops(c, enforce.OverRate, over[id].packets)
		all = append(all, c)
	}
	enforce.Sort(all)
	return all, nil
}

// here returns the attachments that have flows.
func (s *Switch) here(ctx context.Context) []vdn.Attachment {
	ports, err := s.ports(ctx)
	if err != nil {
		return nil
	}
	there, _ := present(s.plan.Local, ports)
	return there
}

// flowsIn parses the output of ovs-ofctl dump-flows: the counts of our flows, by cookie.
func flowsIn(out string) map[cookie]count {
	sums := map[cookie]count{}
	for line := range strings.Lines(out) {
		_, rest, _ := strings.Cut(line, "cookie=0x")
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseUint(number, 16, 64)
		c, ours := cookieOf(n)
		if err != nil || !ours {
			continue
		}
		sum := sums[c]
		sum.packets += numberAfter(line, "n_packets=")
		sum.bytes += numberAfter(line, "n_bytes=")
		sums[c] = sum
	}
	return sums
}

// droppedIn parses the output of ovs-ofctl meter-stats: what the meters dropped.
func droppedIn(out string) map[uint32]count {
	all := map[uint32]count{}
	eachMeter(out, func(id uint32, text string) { // the band's counts come last
		if _, band, ok := strings.Cut(text, "bands:"); ok {
			all[id] = count{packets: numberAfter(band, "packet_count:"), bytes: numberAfter(band, "byte_count:")}
		}
	})
	return all
}
