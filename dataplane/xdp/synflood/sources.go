package synflood

import (
	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// ForgetSources forgets validated sources that have expired. Their times have 16 bits, so
// that they would become valid again after half a period, 2^15 ticks of the flow table. A source that is
// validated in the same moment may be forgotten too; it is validated again.
func ForgetSources(m *ebpf.Map, now uint32) error {
	sets := make([]bpf.BalancerSynSources, m.MaxEntries())
	if _, err := bpf.ReadArray(m, sets); err != nil {
		return err
	}
	for i := range sets {
		expired := false
		for j := range sets[i].Way {
			w := &sets[i].Way[j]
			if w.Tag != 0 && int16(w.Expires-uint16(now)) <= 0 {
				w.Tag, w.Expires, w.Syns, expired = 0, 0, 0, true
			}
		}
		if !expired {
			continue
		}
		if err := m.Put(uint32(i), sets[i]); err != nil {
			return err
		}
	}
	return nil
}
