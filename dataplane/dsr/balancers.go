package dsr

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/internal/bpfmap"
)

// balancerLinger is how long packets of a load balancer are accepted after it has left
// SetBalancers: those in flight, and those that its kernel still forwards while its pod
// is replaced at the same address.
const balancerLinger = time.Minute

// knownBalancers is the content of the map balancers.
type knownBalancers map[dsrAddr]dsrKnownBalancer

// SetBalancers makes the agent accept encapsulated packets only from these addresses or,
// with nil, from any. The pinned state stays in force until the first call. Call it
// before Set, so that no packet reaches a new entry unchecked.
func (h *Agent) SetBalancers(all []netip.Addr) error {
	var wanted knownBalancers
	if all != nil {
		wanted = knownBalancers{}
	}
	for _, a := range all {
		if !a.IsValid() {
			return fmt.Errorf("DSR agent: %q is not a valid load balancer address", a)
		}
		wanted[addrOf(a.Unmap())] = dsrKnownBalancer{}
	}
	if most := h.obj.Balancers.MaxEntries(); len(wanted) > int(most) {
		return fmt.Errorf("DSR agent: %d load balancers exceed the limit of %d", len(wanted), most)
	}
	return h.worker.Do(func() error {
		h.balancers, h.balancersSet = wanted, true
		return h.writeBalancers()
	})
}

// writeBalancers updates the map to the load balancers, including those that have left
// recently. Checking is enabled after the map is written, and disabled before it is
// emptied.
func (h *Agent) writeBalancers() error {
	if !h.balancersSet {
		return nil
	}
	programmed, err := bpfmap.Read[dsrAddr, dsrKnownBalancer](h.obj.Balancers)
	if err != nil {
		return err
	}
	if h.balancers == nil {
		return errors.Join(h.obj.BalancersChecked.Set(uint32(0)), bpfmap.Change(h.obj.Balancers, programmed, knownBalancers{}))
	}
	if err := bpfmap.Change(h.obj.Balancers, programmed, h.balancers.linger(programmed, clock.Now())); err != nil {
		return err
	}
	return h.obj.BalancersChecked.Set(uint32(1))
}

// linger returns wanted plus those in programmed that left recently. now is CLOCK_MONOTONIC.
func (wanted knownBalancers) linger(programmed knownBalancers, now time.Duration) knownBalancers {
	all := maps.Clone(wanted)
	for a, b := range programmed {
		if _, stays := wanted[a]; stays {
			continue
		}
		if b.Left == 0 {
			b.Left = uint64(now)
		}
		if b.Left > uint64(max(0, now-balancerLinger)) {
			all[a] = b
		}
	}
	return all
}

// inheritBalancers makes the programs check senders from their first packet on, if a
// predecessor did.
func (h *Agent) inheritBalancers() error {
	programmed, err := bpfmap.Read[dsrAddr, dsrKnownBalancer](h.obj.Balancers)
	if err != nil || len(programmed) == 0 {
		return err
	}
	return h.obj.BalancersChecked.Set(uint32(1))
}

// senders reads the accepted senders from the kernel.
func (h *Agent) senders() (Senders, error) {
	var checked uint32
	if err := h.obj.BalancersChecked.Get(&checked); err != nil || checked == 0 {
		return Senders{}, err
	}
	programmed, err := bpfmap.Read[dsrAddr, dsrKnownBalancer](h.obj.Balancers)
	s := Senders{Checked: true}
	for a := range programmed {
		s.Known = append(s.Known, a.netip())
	}
	slices.SortFunc(s.Known, netip.Addr.Compare)
	return s, err
}
