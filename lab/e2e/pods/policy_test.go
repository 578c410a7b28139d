package pods_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// pastTheBalancers has a client tunnel its packets straight to a backend, like a load
// balancer: loadBalancerSourceRanges applies there too.
func (p *pods) pastTheBalancers(t *testing.T) {
	s := fixture.Spec{Name: "private", Of: web, Host: 13}
	restrict := func(ranges string) {
		manifest := strings.Replace(s.Manifest(p.World), "  type: LoadBalancer\n", "  type: LoadBalancer\n  loadBalancerSourceRanges: ["+ranges+"]\n", 1)
		if err := p.Write(web, s.Name+".yaml", manifest); err != nil {
			t.Fatal(err)
		}
	}
	server, vip := s.Servers(p.World)[0], s.VIP(false, fixture.EchoPort)
	defer p.routeToPod(t, server)()
	eventually := func(answered bool, when string) {
		t.Helper()
		testkit.Eventually(t, fixture.Within, func() error {
			if p.asksPast(t, server.Addr, vip) != answered {
				return errors.New(when)
			}
			return nil
		})
	}
	own := p.ClientAddrs[0].String() + "/32"
	restrict("fd00::/8, " + own)
	p.Answers(t, s.HTTP())
	eventually(true, "a client inside the source ranges gets no answer")
	restrict("fd00::/8, 192.0.2.0/24")
	eventually(false, "a client outside the source ranges gets answers past the balancers")
	restrict("fd00::/8, " + own)
	eventually(true, "a client inside the source ranges again gets no answer")
}

// routeToPod makes the router route clients directly to a pod, as many networks do.
func (p *pods) routeToPod(t *testing.T, pod topology.Pod) (remove func()) {
	t.Helper()
	change := func(verb string) {
		t.Helper()
		cmd := exec.Command("ip", "route", verb, pod.Addr.String(), "via", pod.Node.Addr.String())
		if err := p.Lab.Host(topology.Router).Do(cmd.Run); err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
	}
	change("add")
	return func() { change("del") }
}

// asksPast sends a datagram for a VIP directly to a backend, in IP in IP, and reports
// whether the VIP answers it.
func (p *pods) asksPast(t *testing.T, backend netip.Addr, vip netip.AddrPort) bool {
	t.Helper()
	answer := make([]byte, 2000)
	err := p.Lab.Host(topology.Client).Do(func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.ClientAddrs[0], 0)), net.UDPAddrFromAddrPort(vip))
		if err != nil {
			return err
		}
		defer conn.Close()
		tunnel, err := net.DialIP("ip4:4", &net.IPAddr{IP: p.ClientAddrs[0].AsSlice()}, &net.IPAddr{IP: backend.AsSlice()})
		if err != nil {
			return err
		}
		defer tunnel.Close()
		inner, err := datagram(conn.LocalAddr().(*net.UDPAddr).AddrPort(), vip)
		if err != nil {
			return err
		}
		if _, err := tunnel.Write(inner); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(time.Second))
		_, err = conn.Read(answer)
		return err
	})
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil
}

func datagram(from, to netip.AddrPort) ([]byte, error) {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, udp, gopacket.Payload("question"))
	return b.Bytes(), err
}
