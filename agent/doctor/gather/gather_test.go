package gather

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/doctor"
)

// TestWhoHangsIsLate has one part block forever: the others are collected, and it is
// recorded as late.
func TestWhoHangsIsLate(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	clockOf := func(f *doctor.Facts) *doctor.Known[doctor.Clock] { return &f.Clock }
	f := &doctor.Facts{Features: map[string]doctor.Known[[]doctor.Feature]{}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	collect(ctx, f, []part{
		fact(clockOf, func(context.Context) (doctor.Clock, error) { <-hang; return doctor.Clock{}, nil }),
		{get: func(context.Context) func(*doctor.Facts) { <-hang; return nil }, late: featuresPart("balancer").late},
	})
	collect(context.Background(), f, []part{
		fact(func(f *doctor.Facts) *doctor.Known[int] { return &f.IPVSServices }, func(context.Context) (int, error) { return 3, nil }),
		fact(func(f *doctor.Facts) *doctor.Known[[]string] { return &f.Chains }, func(context.Context) ([]string, error) { return nil, errors.New("refused") }),
	})
	if f.Clock.Err != late || f.Features["balancer"].Err != late {
		t.Errorf("what hangs: %+v", f)
	}
	if n, known := f.IPVSServices.Get(); n != 3 || !known || f.Chains.Err != "refused" {
		t.Errorf("what does not hang: %+v", f)
	}
	for _, finding := range doctor.Examine(f, doctor.Options{Roles: doctor.DefaultRoles, DataPlane: "xdp"}).Findings {
		if (finding.Check == "clock" || finding.Check == "features/balancer") && finding.Status != doctor.Unknown {
			t.Errorf("%+v", finding)
		}
	}
}

// TestBoundPort parses lines of /proc/net/tcp and udp.
func TestBoundPort(t *testing.T) {
	const rest = " 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0"
	for _, c := range []struct {
		line string
		udp  bool
		port uint16
		ok   bool
	}{
		{"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", false, 0, false},
		{"   0: 00000000:00B3 00000000:0000 0A" + rest, false, 179, true},
		{"   1: 0100007F:00B3 0100007F:C350 01" + rest, false, 0, false}, // established
		{"   2: 0100000A:0EC8 00000000:0000 07" + rest, true, 3784, true},
		{"   3: 0100000A:0EC8 0200000A:0EC8 01" + rest, true, 0, false}, // connected
	} {
		port, inode, ok := boundPort(c.line, c.udp)
		if ok != c.ok || ok && (port != c.port || inode != "4711") {
			t.Errorf("%s: port %d, inode %s, %v", c.line, port, inode, ok)
		}
	}
}
