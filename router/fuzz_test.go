package router

import (
	"testing"

	"github.com/vishvananda/netlink/nl"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzNexthop checks that a reply about a next hop is parsed or rejected, and that a
// group has no more members than fit, with weights from 1 to 256.
func FuzzNexthop(f *testing.F) {
	m := newNhmsg(2, 200).Serialize()
	attribute := func(kind int, value []byte) []byte { return nl.NewRtAttr(kind, value).Serialize() }
	f.Add(append(append(append([]byte{}, m...), attribute(nhaID, nl.Uint32Attr(7))...), attribute(nhaGateway, []byte{10, 0, 0, 1})...))
	f.Add(append(append(append([]byte{}, m...), attribute(nhaGroup, make([]byte, 16))...), attribute(nhaGroupType, nl.Uint16Attr(groupResilient))...))
	f.Add(append(append([]byte{}, m...), attribute(nhaID, []byte{1})...))
	f.Add(append(append([]byte{}, m...), attribute(nhaGroupType, nil)...))
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, reply []byte) {
		fuzzlimit.Time(t)
		hop, err := parseNexthop(reply)
		if err == nil && len(reply) < sizeofNhmsg {
			t.Error("too short, but read")
		}
		if len(hop.members) > len(reply)/8 {
			t.Errorf("%d members of %d bytes", len(hop.members), len(reply))
		}
		for _, one := range hop.members {
			if one.weight < 1 || one.weight > 256 {
				t.Errorf("%+v", one)
			}
		}
	})
}
