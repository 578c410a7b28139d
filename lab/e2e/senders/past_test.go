package senders_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/topology"
)

func socketOf(name string) string { return cluster.Socket(name) }

// asksPast has the client tunnel a datagram for a VIP straight to a backend, from its own
// address or with that of a load balancer, and reports whether the VIP answers.
func (s *senders) asksPast(t *testing.T, six, forged bool) bool {
	t.Helper()
	spec := s.specs[0]
	server, balancer := spec.Servers(s.World)[0], s.Balancers(web)[0]
	from, to, via := s.ClientAddrs[0], server.Addr, server.Node.Addr
	if six {
		from, to, via = s.ClientAddrs6[0], server.Addr6, server.Node.Addr6
	}
	sender := from
	if forged {
		if sender = balancer.Addr; six {
			sender = balancer.Addr6
		}
	}
	defer s.route(t, to, via)()
	vip := spec.VIP(six, fixture.EchoPort)
	answer := make([]byte, 2000)
	err := s.Lab.Host(topology.Client).Do(func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(vip))
		if err != nil {
			return err
		}
		defer conn.Close()
		packet, err := tunneled(sender, to, conn.LocalAddr().(*net.UDPAddr).AddrPort(), vip)
		if err != nil {
			return err
		}
		if err := sendRaw(to, packet); err != nil {
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

// route makes the router route clients directly to a pod, as many networks do.
func (s *senders) route(t *testing.T, pod, via netip.Addr) (remove func()) {
	t.Helper()
	change := func(verb string) {
		t.Helper()
		cmd := exec.Command("ip", "route", verb, pod.String(), "via", via.String())
		if err := s.Lab.Host(topology.Router).Do(cmd.Run); err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
	}
	change("add")
	return func() { change("del") }
}

// tunneled returns a datagram in a tunnel from a sender to a backend.
func tunneled(sender, backend netip.Addr, from, vip netip.AddrPort) ([]byte, error) {
	udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(vip.Port())}
	inner, outer := header(from.Addr(), vip.Addr(), layers.IPProtocolUDP), header(sender, backend, layers.IPProtocolIPv4)
	if vip.Addr().Is6() {
		outer = header(sender, backend, layers.IPProtocolIPv6)
	}
	if err := udp.SetNetworkLayerForChecksum(inner.(gopacket.NetworkLayer)); err != nil {
		return nil, err
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, outer, inner, udp, gopacket.Payload("question"))
	return b.Bytes(), err
}

func header(from, to netip.Addr, proto layers.IPProtocol) gopacket.SerializableLayer {
	if from.Is6() {
		return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	}
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
}

// sendRaw sends a packet that includes its IP header.
func sendRaw(to netip.Addr, packet []byte) error {
	family, at := unix.AF_INET, unix.Sockaddr(nil)
	if to.Is6() {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.As16()}
	} else {
		at = &unix.SockaddrInet4{Addr: to.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, packet, 0, at); err != nil {
		return fmt.Errorf("send to %s: %w", to, err)
	}
	return nil
}
