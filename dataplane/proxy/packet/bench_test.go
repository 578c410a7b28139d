package packet

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/pktgen"
)

// BenchmarkPassing measures the cost for packets that are for no service, compared with a
// program that does nothing.
func BenchmarkPassing(b *testing.B) {
	objects := loadAlone(b)
	p := pktgen.Packet{From: family(false).at(clientAddr, 4000), To: family(false).at(podAAddr, 22), Protocol: "tcp", Payload: 100}
	frame, err := p.Frame()
	if err != nil {
		b.Fatal(err)
	}
	arp := append(append([]byte{}, frame[:12]...), 8, 6)
	arp = append(arp, make([]byte, 46)...)
	for _, bench := range []struct {
		name    string
		program *ebpf.Program
		frame   []byte
	}{
		{"floor", objects.FromInside, arp}, {"coming in", objects.FromInside, frame}, {"leaving", objects.Leaving, frame},
	} {
		b.Run(bench.name, func(b *testing.B) {
			verdict, each, err := bench.program.Benchmark(bench.frame, b.N, b.ResetTimer)
			if err != nil || int(int32(verdict)) != untouched {
				b.Fatalf("verdict %d, %v", int32(verdict), err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "ns/packet")
		})
	}
}

// BenchmarkSweep looks for flows that are over among many that are not.
func BenchmarkSweep(b *testing.B) {
	h := &Half{obj: *loadAlone(b), keep: packetPacketFlowKeep{Opening: 1 << 30}}
	const entries = 1 << 16
	for i := range uint32(entries) {
		if err := h.obj.PacketFlows.Put(packetTuple{Src: packetAddr{Word: [4]uint32{i}}, Proto: 6}, packetPacketFlow{}); err != nil {
			b.Fatal(err)
		}
	}
	cursor := newCursor()
	for b.Loop() {
		for cursor.Rewind(); !cursor.Done(); {
			if over, err := h.nextOver(cursor); err != nil || len(over) > 0 {
				b.Fatal(len(over), err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/entries, "ns/entry")
}

// loadAlone loads the programs with their own maps.
func loadAlone(b *testing.B) *packetObjects {
	spec, err := loadPacket()
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range append(shared, packetMapPacketFlows) {
		spec.Maps[name].MaxEntries = max(spec.Maps[name].MaxEntries, 1<<17)
	}
	var objects packetObjects
	if err := spec.LoadAndAssign(&objects, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { objects.Close() })
	return &objects
}
