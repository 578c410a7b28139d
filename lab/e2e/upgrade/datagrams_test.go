package upgrade_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/topology"
)

// datagrams are UDP flows, each with a periodic query. A flow is broken when another
// backend answers than before, or none answers three queries.
type datagrams struct {
	name string
	to   netip.AddrPort
	stop chan struct{}
	all  sync.WaitGroup

	mu        sync.Mutex
	exchanges int
	broken    []string
	clients   []netip.AddrPort // of the broken flows
}

const (
	pace     = 100 * time.Millisecond
	patience = 3 * time.Second
	attempts = 3
)

// startDatagrams opens n flows to the echo port of a Service.
func (d *deployment) startDatagrams(t *testing.T, name string, s fixture.Spec, n int) *datagrams {
	t.Helper()
	g := &datagrams{name: name, to: s.VIP(false, fixture.EchoPort), stop: make(chan struct{})}
	for i := range n {
		local := net.UDPAddr{IP: d.ClientAddrs[i%len(d.ClientAddrs)].AsSlice()}
		var conn *net.UDPConn
		err := d.Lab.Host(topology.Client).Do(func() (err error) {
			conn, err = net.DialUDP("udp", &local, net.UDPAddrFromAddrPort(g.to))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		g.all.Go(func() { g.flow(conn) })
	}
	t.Cleanup(g.end)
	return g
}

func (g *datagrams) end() {
	select {
	case <-g.stop:
	default:
		close(g.stop)
	}
	g.all.Wait()
}

func (g *datagrams) flow(conn *net.UDPConn) {
	defer conn.Close()
	first, failed := "", 0
	for number := 0; ; number++ {
		select {
		case <-g.stop:
			return
		case <-time.After(pace):
		}
		server, err := ask(conn, number)
		switch {
		case err != nil:
			if failed++; failed == attempts {
				g.broke(conn, fmt.Sprintf("%s answers no more: %v", first, err))
			}
			continue
		case first != "" && server != first:
			g.broke(conn, fmt.Sprintf("%s answers in place of %s", server, first))
		}
		first, failed = server, 0
		g.mu.Lock()
		g.exchanges++
		g.mu.Unlock()
	}
}

// ask sends a query and reads until its answer arrives.
func ask(conn *net.UDPConn, number int) (server string, err error) {
	question := fmt.Sprint("q", number)
	if _, err := conn.Write([]byte(question)); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	b := make([]byte, 200)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return "", err
		}
		if server, asked, _ := strings.Cut(string(b[:n]), " "); asked == question {
			return server, nil
		}
	}
}

func (g *datagrams) broke(conn *net.UDPConn, how string) {
	client := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = append(g.broken, fmt.Sprintf("%s: %s", client, how))
	g.clients = append(g.clients, client)
}

// lastBroken is the client of the flow that broke last.
func (g *datagrams) lastBroken() netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.clients[len(g.clients)-1]
}

// counts returns how many queries were answered, and which flows broke.
func (g *datagrams) counts() (exchanges int, broken []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.exchanges, append([]string(nil), g.broken...)
}
