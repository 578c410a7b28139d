package lab

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/ethtool"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestOffloadsAreAsDrawn(t *testing.T) {
	l, err := Build(t.Context(), Topology{
		Hosts: []HostSpec{{Name: "a"}, {Name: "b"}, {Name: "c"}},
		Links: []Link{
			{A: At("a", "eth0").ForXDP(), B: At("b", "eth0")},
			{A: At("a", "eth1").ForXDP(), B: At("c", "eth0"), Cuttable: true},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, test := range []struct {
		ns         *netns.NS
		dev        string
		txsum, gro uint32
	}{
		{l.Host("a").ns, "eth0", 0, 1},
		{l.Host("b").ns, "eth0", 1, 0},
		{l.Host("a").ns, "eth1", 0, 1},
		{l.Host("c").ns, "eth0", 1, 0},
		{l.panel.ns, "wire1b", 0, 1}, // c's neighbor in a's place
		{l.panel.ns, "wire1a", 1, 0},
	} {
		var txsum, gro uint32
		testkit.Do(t, test.ns, func() (err error) {
			if txsum, err = ethtool.CallValue(test.dev, unix.ETHTOOL_GTXCSUM, 0); err != nil {
				return err
			}
			gro, err = ethtool.CallValue(test.dev, unix.ETHTOOL_GGRO, 0)
			return err
		})
		if txsum != test.txsum || gro != test.gro {
			t.Errorf("%s %s: tx checksum %d, GRO %d; want %d, %d", test.ns.Name(), test.dev, txsum, gro, test.txsum, test.gro)
		}
	}
}

func TestOffload(t *testing.T) {
	l, err := Build(t.Context(), Topology{
		Hosts: []HostSpec{{Name: "a"}, {Name: "b"}},
		Links: []Link{{A: At("a", "eth0"), B: At("b", "eth0")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, want := range []uint32{0, 1} {
		if err := l.Host("a").Offload("eth0", want == 1); err != nil {
			t.Fatal(err)
		}
		testkit.Do(t, l.Host("a").ns, func() error {
			for _, get := range []uint32{unix.ETHTOOL_GTXCSUM, unix.ETHTOOL_GTSO, unix.ETHTOOL_GGSO} {
				if got, err := ethtool.CallValue("eth0", get, 0); err != nil || got != want {
					t.Errorf("command %#x: %d, %v; want %d", get, got, err, want)
				}
			}
			return nil
		})
	}
	if err := l.Host("a").Offload("eth9", true); err == nil {
		t.Error("a missing interface was configured")
	}
}
