// Package multisite is a ready-made lab: two sites, Daejeon and Busan, connected by a link
// that stands for a wide-area network and can be limited, as in "Open-Cloud Computing
// Platform Design based on Virtually Dedicated Network and Container Interface" (Kim et
// al., 2019), Fig. 4. The caller decides what runs there, and how pods are attached.
//
//	daejeon-node ─┬─eth0─┐                                   ┌─eth0─┬─ busan-node
//	              └─eth1─┤ daejeon-gw ═══ wan 192.0.2.0/30 ═══ busan-gw ├─eth1─┘
//	daejeon-server ─eth0─┘                                   └─eth0─── busan-server
//
// Site N (1, 2) has 10.N.0.0/16: its node is 10.N.0.2 behind eth0, which also carries
// 10.N.1.0/24 for pods directly on it; eth1, 10.N.2.0/24, is for one pod; the server is
// 10.N.3.2; and 10.N.16.0/20 is for pods that the node forwards to. The gateway has the
// first address of each range except the last.
package multisite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/lab"
)

// Interfaces of a node, and of a gateway toward the other site.
const (
	NodeDev  = "eth0"
	SpareDev = "eth1"
	WANDev   = "wan"
)

// Site is one of the two sites.
type Site struct {
	Name string
	// Number is N in its addresses.
	Number int
	// Node, Gateway and Server are hosts of the lab.
	Node, Gateway, Server string
	NodeAddr, ServerAddr  netip.Addr
	// WANAddr is the gateway's address toward the other site.
	WANAddr netip.Addr
}

// Domain is the site's name as a domain of virtually dedicated networks.
func (s *Site) Domain() string { return s.Name + ".example" }

// subnet returns 10.N.third.0 with a prefix length.
func (s *Site) subnet(third, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(s.Number), byte(third), 0}), bits)
}

// OnNode are the addresses of pods directly on the node's eth0.
func (s *Site) OnNode() netip.Prefix { return s.subnet(1, 24) }

// OnSpare are the addresses of the pod that has the node's eth1.
func (s *Site) OnSpare() netip.Prefix { return s.subnet(2, 24) }

// Behind are the addresses of pods that the node forwards to.
func (s *Site) Behind() netip.Prefix { return s.subnet(16, 20) }

// Bridge returns the part of Behind for one bridge of the node, 0 to 15.
func (s *Site) Bridge(i int) netip.Prefix { return s.subnet(16+i, 24) }

// Sites are both sites, and their lab.
type Sites struct {
	Lab            *lab.Lab
	Daejeon, Busan *Site

	ends     []*os.File // of the delay line, if there is one
	carrying sync.WaitGroup
}

func newSite(name string, number int) *Site {
	s := &Site{Name: name, Number: number, Node: name + "-node", Gateway: name + "-gw", Server: name + "-server"}
	s.NodeAddr, s.ServerAddr, s.WANAddr = Nth(s.subnet(0, 24), 2), Nth(s.subnet(3, 24), 2), Nth(wan, number)
	return s
}

// Nth returns the address n after a prefix's own.
func Nth(p netip.Prefix, n int) netip.Addr {
	a := p.Addr().As4()
	a[3] += byte(n)
	return netip.AddrFrom4(a)
}

// in formats the nth address of a prefix for an interface.
func in(p netip.Prefix, n int) string { return netip.PrefixFrom(Nth(p, n), p.Bits()).String() }

// wan is the network between the sites.
var wan = netip.MustParsePrefix("192.0.2.0/30")

// New builds them; the link between them has no limit yet. It needs a sandbox.
func New(ctx context.Context) (*Sites, error) { return NewDelayed(ctx, 0) }

// NewDelayed builds sites between which each packet takes some time.
func NewDelayed(ctx context.Context, delay time.Duration) (*Sites, error) {
	s := &Sites{Daejeon: newSite("daejeon", 1), Busan: newSite("busan", 2)}
	t := lab.Topology{Title: "Two sites and the network between them"}
	for _, site := range []*Site{s.Daejeon, s.Busan} {
		part := site.draw()
		t.Hosts, t.Links = append(t.Hosts, part.Hosts...), append(t.Links, part.Links...)
	}
	end := func(of, other *Site) lab.End {
		return lab.At(of.Gateway, WANDev, in(wan, of.Number)).Via(other.WANAddr.String(), other.subnet(0, 16).String())
	}
	if delay == 0 {
		t.Links = append(t.Links, lab.Link{A: end(s.Daejeon, s.Busan), B: end(s.Busan, s.Daejeon)})
	}
	var err error
	if s.Lab, err = lab.Build(ctx, t); err != nil || delay == 0 {
		return s, err
	}
	if err := s.connect(delay); err != nil {
		return nil, errors.Join(fmt.Errorf("delay line: %w", err), s.Close())
	}
	return s, nil
}

func (s *Site) draw() lab.Topology {
	lan, spare, server := s.subnet(0, 24), s.OnSpare(), s.subnet(3, 24)
	return lab.Topology{
		Hosts: []lab.HostSpec{
			// Packets of pods that it forwards for leave with its address, except to
			// other such pods.
			{Name: s.Node, Is: "node", Forward: true, SNAT: []lab.SNAT{{From: s.Behind().String(), Spare: []string{"10.1.16.0/20", "10.2.16.0/20"}}}},
			{Name: s.Gateway, Is: "gateway", Forward: true},
			{Name: s.Server, Is: "measuring server"},
		},
		Links: []lab.Link{
			{
				A: lab.At(s.Node, NodeDev, in(lan, 2)).Via(Nth(lan, 1).String(), "default"),
				B: lab.At(s.Gateway, "node", in(lan, 1), in(s.OnNode(), 1)).Via(s.NodeAddr.String(), s.Behind().String()),
			},
			{A: lab.At(s.Node, SpareDev), B: lab.At(s.Gateway, "spare", in(spare, 1))},
			{
				A: lab.At(s.Server, "eth0", in(server, 2)).Via(Nth(server, 1).String(), "default"),
				B: lab.At(s.Gateway, "server", in(server, 1)),
			},
		},
	}
}

// Limit sets the rate of the link between the sites in each direction, in bit/s; 0 means
// no limit.
func (s *Sites) Limit(rate uint64) error {
	for _, site := range []*Site{s.Daejeon, s.Busan} {
		if err := s.Lab.Host(site.Gateway).Reshape(WANDev, lab.Shape{Rate: rate}); err != nil {
			return fmt.Errorf("limit the link between the sites: %w", err)
		}
	}
	return nil
}

// Close removes everything.
func (s *Sites) Close() error {
	var errs []error
	for _, end := range s.ends {
		errs = append(errs, end.Close())
	}
	s.carrying.Wait()
	return errors.Join(append(errs, s.Lab.Close())...)
}
