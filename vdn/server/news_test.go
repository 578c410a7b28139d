package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/server"
)

// TestNoNewsIsLost has several clients wait for plans while attachments change. Each must
// see every change, including one that happens while its plan is being computed.
func TestNoNewsIsLost(t *testing.T) {
	r := start(t, server.Options{})
	if err := r.PutNetwork(r.ctx, network("science", "10.1.0.0/20")); err != nil {
		t.Fatal(err)
	}
	if err := r.Report(r.ctx, vdn.NodeReport{Node: vdn.Node{Name: "n1", Means: "kernel", Uplinks: []vdn.Uplink{}}}); err != nil {
		t.Fatal(err)
	}
	const clients, pods = 4, 80
	received := make(chan int, clients*pods*2)
	for range clients {
		go func() {
			for after, up := uint64(0), 0; up < pods; {
				p, fresh, err := r.Plan(r.ctx, "n1", after, 30*time.Second)
				if err != nil {
					return // the test has ended
				}
				if !fresh {
					continue
				}
				after, up = p.Revision, 0
				for _, a := range p.Local {
					if a.Phase == vdn.Up {
						up++
					}
				}
				received <- up
			}
		}()
	}
	for i := range pods {
		lease, err := r.Attach(r.ctx, vdn.AttachmentRequest{Network: "science", Node: "n1", Container: fmt.Sprintf("c%d", i), Interface: "net0"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Up(r.ctx, lease.Attachment.ID, vdn.UpReport{Device: "eth1", MAC: "02:00:00:00:00:01", NetNS: "/run/netns/x"}); err != nil {
			t.Fatal(err)
		}
		for all := 0; all < clients; {
			select {
			case up := <-received:
				if up == i+1 {
					all++
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("pod %d is up: only %d of %d have received it", i, all, clients)
			}
		}
	}
}
