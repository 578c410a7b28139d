package dataplane_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
)

// removable is an in-memory data plane that can be removed, and may reject a frontend.
type removable struct {
	*fake.DataPlane
	refuses bool
	// leftTo is what the next one had programmed when this one was removed.
	next   *removable
	leftTo []desired.Frontend
	closed bool
}

func (r *removable) Upsert(f desired.Frontend) error {
	if r.refuses && f.Port == 81 {
		return dataplane.Unsupported(f.Key, "port 81")
	}
	return r.DataPlane.Upsert(f)
}

func (r *removable) Detach() (err error) {
	r.leftTo, err = r.next.List()
	return err
}

func (r *removable) Close() error { r.closed = true; return nil }

func TestMove(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		to := &removable{DataPlane: fake.New(), refuses: refuses}
		from := &removable{DataPlane: fake.New(), next: to}
		for port := range uint16(2) {
			f := desired.Frontend{
				Key:    service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80 + port, Protocol: service.TCP},
				Method: service.Tunnel, Scheduler: service.Maglev, RingSize: 251,
				Backends: []service.Backend{{Addr: netip.MustParseAddrPort("172.16.1.1:8080"), Weight: 1}},
			}
			if err := from.Upsert(f); err != nil {
				t.Fatal(err)
			}
		}
		err := dataplane.Move(from, to)
		if refuses {
			if !errors.Is(err, dataplane.ErrUnsupported) || !strings.Contains(err.Error(), "10.1.1.1:81") || from.leftTo != nil || !from.closed {
				t.Errorf("one is refused: %v; removed over %v, closed %v", err, from.leftTo, from.closed)
			}
			continue
		}
		want, _ := from.List()
		if err != nil || len(from.leftTo) != 2 || !from.leftTo[0].Same(want[0]) || !from.leftTo[1].Same(want[1]) {
			t.Errorf("%v; removed when the next programmed %v", err, from.leftTo)
		}
	}
}
