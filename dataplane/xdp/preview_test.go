package xdp

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// TestPreviewIsWhatUpsertDoes previews a series of changes, each from what the one before has
// left. The owners of every flow are those after the change, and a preview changes nothing.
func TestPreviewIsWhatUpsertDoes(t *testing.T) {
	for name, v := range map[string]struct {
		wideRings int
		twin      bool // another frontend with the same ring changes first
	}{"wide": {}, "narrow": {wideRings: 1}, "shared": {twin: true}} {
		t.Run(name, func(t *testing.T) { previewAll(t, v.wideRings, v.twin) })
	}
}

// previewBase is the frontend before all changes, with a history.
func previewBase() desired.Frontend {
	f := frontend(service.Tunnel, vips[false], service.TCP, "172.16.1.1:80", "172.16.1.2:80", "172.16.1.3:80")
	for i := range f.Backends {
		f.Backends[i].Since = time.Date(2026, 1, 1, i, 0, 0, 0, time.UTC)
	}
	return f
}

var previewSteps = []func(*desired.Frontend){
	func(*desired.Frontend) {},
	func(f *desired.Frontend) { f.Backends = f.Backends[:2] },
	func(f *desired.Frontend) { f.Backends = append(f.Backends[:2], previewBase().Backends[2]) },
	func(f *desired.Frontend) { f.Backends[0].Weight = 0 },
	func(f *desired.Frontend) { f.Backends[0].Weight = 5 },
	func(f *desired.Frontend) { f.Survival = service.HashOnly },
	func(f *desired.Frontend) { f.RingSize = 509 },
	func(f *desired.Frontend) { f.Scheduler = service.SourceHash },
	func(f *desired.Frontend) { f.Survival = service.FlowTable },
	func(f *desired.Frontend) { f.Scheduler, f.Survival = service.Maglev, service.SecondChance },
	func(f *desired.Frontend) { f.Method = service.DSRNAT },
}

func previewAll(t *testing.T, wideRings int, twin bool) {
	c := config()
	c.WideRings = wideRings
	d, f := newNet(t).open(t, c), previewBase()
	for step, do := range previewSteps {
		f.Backends = slices.Clone(f.Backends)
		do(&f)
		if twin {
			other := f
			other.Port++
			upsert(t, d, other)
		}
		d.previewOne(t, step, f)
	}
	f.Scheduler, f.Survival = service.RoundRobin, service.FlowTable
	if p, err := d.Preview(f); err != nil || p.Owners != nil || p.Slots != 0 {
		t.Errorf("rr: %+v, %v", p, err)
	}
	f.Method = "none"
	if _, err := d.Preview(f); !errors.Is(err, dataplane.ErrUnsupported) {
		t.Errorf("an unsupported forwarding mode: %v", err)
	}
}

// previewOne previews a change and makes it. The first step adds the frontend, which has no
// flows before.
func (d *DataPlane) previewOne(t *testing.T, step int, f desired.Frontend) {
	t.Helper()
	previewed, err := d.Preview(f)
	must(t, err)
	before := d.addressesOf(f.Key)
	if again, err := d.Preview(f); err != nil || again.Moved != previewed.Moved {
		t.Errorf("step %d: previewed again %+v, %v", step, again, err)
	}
	if !slices.Equal(before.slots, d.addressesOf(f.Key).slots) {
		t.Fatalf("step %d: the preview has changed the ring", step)
	}
	upsert(t, d, f)
	after := d.addressesOf(f.Key)
	if previewed.Slots != len(after.slots) || (previewed.Owners == nil) != (step == 0) {
		t.Fatalf("step %d: previewed %+v for %d slots", step, previewed, len(after.slots))
	}
	for i := 0; i < 2000 && step > 0; i++ {
		flow := schedule.Flow{Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), 4000), Key: f.Key}
		if got, want := previewed.Owners(flow), after.owners(f, flow); !slices.Equal(got, want) {
			t.Fatalf("step %d: %s was previewed at %v, and is at %v", step, flow, got, want)
		}
	}
	if share := movedSlowly(before, after); math.Abs(share-previewed.Moved) > 1e-9 {
		t.Errorf("step %d: %v of the slots moved, previewed %v", step, share, previewed.Moved)
	}
}

// addressesOf returns what a frontend has in the kernel.
func (d *DataPlane) addressesOf(k service.Key) addresses {
	h := d.programmed[k]
	if h == nil {
		return addresses{}
	}
	return addressesOf(h.members, d.rings.Slots(h.ring()))
}

// movedSlowly compares the owners of all common parts of two tables.
func movedSlowly(before, after addresses) float64 {
	n, m, differ := len(before.slots), len(after.slots), 0
	if n == 0 {
		return 0
	}
	for x := range n * m {
		if before.of[before.slots[x/m].First] != after.of[after.slots[x/n].First] {
			differ++
		}
	}
	return float64(differ) / float64(n*m)
}
