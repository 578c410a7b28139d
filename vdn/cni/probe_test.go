package cni

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fairlead/fairlead/advertise/l2/packet"
	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestAnswersThatAreReadLate checks that a node too busy to read a response within the
// silence reads it afterwards, behind other queued frames.
func TestAnswersThatAreReadLate(t *testing.T) {
	ours := veth(t, "late")
	address := netip.MustParseAddr("10.9.0.7")
	s, err := openSegment(ours, &current.Result{IPs: []*current.IPConfig{{Address: net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(24, 32)}}}})
	must(t, err)
	defer s.close()
	over := time.Now().Add(-time.Second)
	if by, used := s.answered(address, over); used {
		t.Fatalf("%s has answered before anybody was there", by)
	}
	other := link(t, "latep")
	theirs, err := packet.Open(other.Attrs().Index, wire.EtherTypeARP)
	must(t, err)
	defer theirs.Close()
	mac := wire.MAC(other.Attrs().HardwareAddr)
	testkit.Eventually(t, within, func() error {
		_, _ = theirs.Write(wire.Probe(address.Next(), mac))
		_, _ = theirs.Write(wire.Probe(address, mac))
		if by, used := s.answered(address, over); !used || by != mac {
			return errors.New("not received")
		}
		return nil
	})
}
