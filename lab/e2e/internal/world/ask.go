package world

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/lab/testkit"
)

// echo starts a server that answers each datagram with its own name and the datagram's
// content.
func (w *World) echo(t *testing.T, host string) {
	t.Helper()
	conn, err := w.Lab.Host(host).ListenPacket("udp", fmt.Sprintf(":%d", EchoTarget))
	if err != nil {
		t.Fatal(err)
	}
	w.CloseLater(conn)
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

// Ask sends a datagram from a new port, repeatedly until an answer arrives, and returns
// the backend's name. The socket is connected, so an answer from an address other than
// the VIP is not received.
func (w *World) Ask(t *testing.T, local netip.Addr, vip netip.AddrPort) (server string, err error) {
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
	for deadline := time.Now().Add(Within); time.Now().Before(deadline); {
		if _, err = conn.Write([]byte("question")); err != nil {
			time.Sleep(10 * time.Millisecond) // an ICMP error for the previous datagram
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

// ClientAddr returns the client's default address in the family of the VIP.
func (w *World) ClientAddr(vip netip.AddrPort) netip.Addr {
	if vip.Addr().Is6() {
		return w.ClientAddrs6[0]
	}
	return w.ClientAddrs[0]
}

// Answers waits until a VIP answers HTTP for the first time.
func (w *World) Answers(t *testing.T, vip netip.AddrPort) {
	t.Helper()
	testkit.Eventually(t, Within, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		conn, err := w.Lab.Host(paper.Client).Dial(ctx, w.ClientAddr(vip), vip)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Requests makes n requests, each with its own connection, and returns how many each
// backend answered.
func (w *World) Requests(t *testing.T, n uint64, vip netip.AddrPort) map[string]uint64 {
	t.Helper()
	c, err := load.Start(t.Context(), load.Config{
		Dial: w.Lab.Host(paper.Client).Dial, Target: vip, Locals: []netip.Addr{w.ClientAddr(vip)},
		OneShotRate: 500, MaxRequests: n, Timeout: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, Within, func() error {
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

// Reach sends requests to a Service over each protocol and family, and expects every
// backend to answer some.
func (w *World) Reach(t *testing.T, s Spec, six bool) {
	t.Helper()
	for _, six := range []bool{false, six} {
		vip, echo, locals := s.VIP(six, HTTPPort), s.VIP(six, EchoPort), w.ClientAddrs
		if six {
			locals = w.ClientAddrs6
		}
		w.Answers(t, vip)
		answered := w.Requests(t, 60, vip)
		for i := range 30 {
			server, err := w.Ask(t, locals[i%len(locals)], echo)
			if err != nil {
				t.Errorf("UDP %s: %v", echo, err)
				break
			}
			answered["UDP "+server]++
		}
		for _, pod := range s.Servers(w) {
			if answered[pod.Name] == 0 || answered["UDP "+pod.Name] == 0 {
				t.Errorf("%s: server %s did not get its share of TCP and UDP: %v", vip, pod.Name, answered)
			}
		}
	}
}

// BothAnswer waits until both backends have answered at a VIP.
func BothAnswer(t *testing.T, l *lab.Lab, vip netip.AddrPort) {
	t.Helper()
	answered := map[string]int{}
	testkit.Eventually(t, Within, func() error {
		server, err := AskHTTP(t.Context(), l.Host("client"), vip)
		if err != nil {
			return err
		}
		if answered[server]++; len(answered) < 2 {
			return fmt.Errorf("%s: only %v answered", vip, answered)
		}
		return nil
	})
}

// AskHTTP makes a request with a new connection and returns the backend's name.
func AskHTTP(ctx context.Context, from *lab.Host, vip netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return from.Dial(ctx, netip.Addr{}, vip)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+vip.String()+"/", nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if name := resp.Header.Get(load.ServerHeader); strings.HasPrefix(name, "web") {
		return name, nil
	}
	return "", fmt.Errorf("%s answers %s, not from a test server", vip, resp.Status)
}
