package lab_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/lab"
)

func TestTopologyDrawsItself(t *testing.T) {
	const want = `a small network

outside          client                   192.168.0.2/24  fd92::2/64
└─ router        router                   192.168.0.1/24  fd92::1/64  10.0.0.1/16  fd10::1/64
   └═ lan        node network (MTU 1600)
      ├═ a       host                     10.0.0.2/16  fd10::2/64
      │  └─ c    (MTU 1500)
      └═ b       node                     10.0.0.3/16  fd10::3/64  172.16.1.1/32  fd16::1/128
         └─ pod  pod                      172.16.1.9/32  fd16::9/128
also: pod eth9 ─ c eth0
`
	topology := smallNetwork()
	topology.Hosts = append(topology.Hosts, lab.HostSpec{Name: "c"})
	topology.Links = append(topology.Links,
		lab.Link{A: lab.At("pod", "eth9"), B: lab.At("c", "eth0")},
		lab.Link{A: lab.At("c", "eth1"), B: lab.At("a", "eth1")})
	if diff := cmp.Diff(want, topology.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
