package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/paper"
)

// echo starts a server that answers each datagram with its own name and what
// it was sent.
func (w *world) echo(t *testing.T, host string) {
	t.Helper()
	conn, err := w.Lab.Host(host).ListenPacket("udp", fmt.Sprintf(":%d", echoTarget))
	if err != nil {
		t.Fatal(err)
	}
	w.closeLater(conn)
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			conn.WriteTo([]byte(host+" "+string(b[:n])), from)
		}
	}()
}

// ask sends a datagram from a fresh port, again and again until an answer
// comes, and gives the server's name. The socket is connected: an answer from
// anywhere but the VIP does not come through.
func (w *world) ask(t *testing.T, local netip.Addr, vip netip.AddrPort) (server string, err error) {
	t.Helper()
	var conn net.Conn
	err = w.Lab.Host(paper.Client).Do(func() (err error) {
		conn, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)), net.UDPAddrFromAddrPort(vip))
		return err
	})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	b := make([]byte, 2000)
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		if _, err = conn.Write([]byte("question")); err != nil {
			time.Sleep(10 * time.Millisecond) // an ICMP error of the datagram before
			continue
		}
		conn.SetReadDeadline(time.Now().Add(time.Second))
		n, e := conn.Read(b)
		if err = e; err == nil {
			var question string
			if _, err := fmt.Sscan(string(b[:n]), &server, &question); err != nil || question != "question" {
				return "", fmt.Errorf("the answer is %q", b[:n])
			}
			return server, nil
		}
	}
	return "", err
}

// client gives the client's address for what has none of its own.
func (w *world) client(vip netip.AddrPort) netip.Addr {
	if vip.Addr().Is6() {
		return w.ClientAddrs6[0]
	}
	return w.ClientAddrs[0]
}

// answers waits until a VIP answers HTTP for the first time.
func (w *world) answers(t *testing.T, vip netip.AddrPort) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		conn, err := w.Lab.Host(paper.Client).Dial(ctx, w.client(vip), vip)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// requests makes some, each with a connection of its own, and gives how many
// each server answered.
func (w *world) requests(t *testing.T, n uint64, vip netip.AddrPort) map[string]uint64 {
	t.Helper()
	c, err := load.Start(t.Context(), load.Config{
		Dial: w.Lab.Host(paper.Client).Dial, Target: vip, Locals: []netip.Addr{w.client(vip)},
		OneShotRate: 500, MaxRequests: n, Timeout: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, within, func() error {
		if done := c.Total().Requests; done < n {
			return fmt.Errorf("%d of %d requests to %s ended", done, n, vip)
		}
		return nil
	})
	c.Stop()
	if total := c.Total(); total.Failed > 0 {
		t.Errorf("%s: %d of %d requests failed: %v", vip, total.Failed, n, total.Reasons)
	}
	return c.Total().PerServer
}
