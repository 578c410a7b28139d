package wire

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unique"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

func TestRoutesOfAnUpdate(t *testing.T) {
	first4, first6, hop := netip.MustParseAddr("40.0.0.0"), netip.MustParseAddr("2001:db8::"), netip.MustParseAddr("10.0.0.1")
	for name, c := range map[string]struct {
		messages []byte
		want     int
	}{
		"IPv4":            {rawbgp.Announce(first4, hop, 450), 450},
		"IPv6":            {rawbgp.Announce(first6, first6, 450), 450},
		"IPv4, withdrawn": {rawbgp.Withdraw(first4, 450), 450},
		"IPv6, withdrawn": {rawbgp.Withdraw(first6, 450), 450},
		"no route":        {rawbgp.Update(rawbgp.Good(hop), nil), 1},
		"no UPDATE":       {rawbgp.Message(pkt.BGP_MSG_UPDATE, []byte{255, 255, 0, 0}), 1},
	} {
		got := 0
		r := NewReader(bytes.NewReader(c.messages))
		for _, body, err := r.Next(); err == nil; _, body, err = r.Next() {
			u, _ := decoder.Update(body)
			got += u.Routes()
		}
		if got != c.want {
			t.Errorf("%s: %d routes, want %d", name, got, c.want)
		}
	}
}

var decoder = Decoder{Families: map[pkt.Family]pkt.BGPAddPathMode{pkt.RF_IPv4_UC: 0, pkt.RF_IPv6_UC: 0}}

func octets(list ...byte) string { return string(list) }

// What is written is read again, whatever both sides support.
func TestWrittenIsRead(t *testing.T) {
	full := Attributes{
		Origin: 1, ASPath: octets(2, 2, 0, 0, 0xfd, 0xfd, 0, 1, 0, 0, 1, 1, 0, 0, 0, 9), MED: 0, HasMED: true, LocalPref: 7, HasPref: true,
		Communities: octets(1, 2, 3, 4, 0xff, 0xff, 0, 0), ExtendedCommunities: octets(0x40, 4, 0, 1, 1, 2, 3, 4), LargeCommunities: strings.Repeat("\x01", 300),
		Originator: octets(1, 2, 3, 4), Clusters: octets(5, 6, 7, 8, 9, 9, 9, 9),
	}
	var keys4, keys6 []Key
	for i := range 2000 {
		keys4 = append(keys4, Key{netip.PrefixFrom(netip.AddrFrom4([4]byte{40, 0, byte(i >> 8), byte(i)}), 32), uint32(i)})
		keys6 = append(keys6, Key{netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 14: byte(i >> 8), 15: byte(i)}), 128), uint32(i)})
	}
	four, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, twoOctets := range []bool{false, true} {
		for _, ids := range []bool{false, true} {
			for hop, keys := range map[netip.Addr][]Key{four: keys4, six: slices.Concat(keys4, keys6)} {
				a := full
				a.NextHop = hop
				writtenIsRead(t, unique.Make(a), keys, twoOctets, ids)
			}
		}
	}
}

func writtenIsRead(t *testing.T, a Shared, keys []Key, twoOctets, ids bool) {
	t.Helper()
	e, d := Encoder{TwoOctets: twoOctets, IDs: map[pkt.Family]bool{}}, Decoder{TwoOctets: twoOctets, Families: map[pkt.Family]pkt.BGPAddPathMode{}}
	for _, f := range Families {
		e.IDs[f] = ids
		if d.Families[f] = pkt.BGP_ADD_PATH_NONE; ids {
			d.Families[f] = pkt.BGP_ADD_PATH_RECEIVE
		}
	}
	want := map[Key]Shared{}
	for _, k := range keys {
		if !ids {
			k.ID = 0
		}
		want[k] = a
	}
	got := map[Key]Shared{}
	read := func(messages [][]byte) {
		for _, m := range messages {
			if len(m) > pkt.BGP_MAX_MESSAGE_LENGTH {
				t.Errorf("a message has %d bytes", len(m))
			}
			_, body, err := NewReader(bytes.NewReader(m)).Next()
			if err != nil {
				t.Fatal(err)
			}
			u, err := d.Update(body)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range u.Withdrawn {
				delete(got, k)
			}
			for _, n := range u.Announced {
				for _, k := range n.Keys {
					got[k] = n.Attributes
				}
			}
		}
	}
	read(e.Announce(a, keys))
	if !maps.Equal(got, want) {
		t.Errorf("two octets %t, identifiers %t: wrote %d, read %d; %+v", twoOctets, ids, len(want), len(got), a.Value())
	}
	read(e.Withdraw(keys))
	if len(got) > 0 {
		t.Errorf("two octets %t, identifiers %t: %d are not withdrawn", twoOctets, ids, len(got))
	}
}

// An UPDATE may have prefixes of both families, and therefore two next hops.
func TestNextHopOfEachFamily(t *testing.T) {
	nlri := []byte{24, 10, 1, 1}
	reach := func(afi byte, hop string, prefix ...byte) []byte {
		v := slices.Concat([]byte{0, afi, 1, byte(len(hop))}, []byte(hop), []byte{0}, prefix)
		return append([]byte{0x80, 14, byte(len(v))}, v...)
	}
	address := func(a string) string { return string(netip.MustParseAddr(a).AsSlice()) }
	good, none := rawbgp.Good(netip.MustParseAddr("10.0.0.105")), slices.Concat(rawbgp.Origin, rawbgp.NoPath)
	six := []byte{64, 0xfd, 0, 0, 1, 0, 1, 0, 0}
	for _, c := range []struct {
		update []byte
		want   string
	}{
		{rawbgp.Update(slices.Concat(good, reach(2, address("fd00::105"), six...)), nlri), "10.1.1.0/24 via 10.0.0.105; fd00:1:1::/64 via fd00::105"},
		{rawbgp.Update(slices.Concat(none, reach(1, address("fd00::106"), nlri...)), nil), "10.1.1.0/24 via fd00::106"},
		{rawbgp.Update(slices.Concat(none, reach(2, address("::")+address("fe80::105"), six...)), nil), "fd00:1:1::/64 via fe80::105"},
		{rawbgp.Update(none, nlri), "10.1.1.0/24 withdrawn"},
	} {
		u, err := decoder.Update(c.update[19:])
		var got []string
		for _, k := range u.Withdrawn {
			got = append(got, k.Prefix.String()+" withdrawn")
		}
		for _, a := range u.Announced {
			got = append(got, fmt.Sprintf("%s via %s", a.Keys[0].Prefix, a.Attributes.Value().NextHop))
		}
		if text := strings.Join(got, "; "); err != nil || text != c.want {
			t.Errorf("%s, %v; want %s", text, err, c.want)
		}
	}
}

// Older speakers write four-octet AS numbers into another attribute, or do not know them.
func TestPathOfTwoOctets(t *testing.T) {
	for _, c := range []struct{ path, as4, want string }{
		{octets(2, 2, 0, 1, 0, 2), "", octets(2, 2, 0, 0, 0, 1, 0, 0, 0, 2)},
		{octets(2, 3, 0, 1, 0x5b, 0xa0, 0x5b, 0xa0), octets(2, 2, 1, 0, 0, 1, 1, 0, 0, 2), octets(2, 1, 0, 0, 0, 1) + octets(2, 2, 1, 0, 0, 1, 1, 0, 0, 2)},
		{octets(2, 1, 0, 1), octets(2, 2, 1, 0, 0, 1, 1, 0, 0, 2), octets(2, 1, 0, 0, 0, 1)}, // too long to be true
		{octets(2, 1, 0, 1, 1, 2, 0, 2, 0, 3), octets(1, 2, 1, 0, 0, 1, 0, 0, 0, 3), octets(2, 1, 0, 0, 0, 1) + octets(1, 2, 1, 0, 0, 1, 0, 0, 0, 3)},
		{"", "", ""},
	} {
		if got := widen(c.path, c.as4); got != c.want {
			t.Errorf("%x and %x: %x, want %x", c.path, c.as4, got, c.want)
		}
	}
}
