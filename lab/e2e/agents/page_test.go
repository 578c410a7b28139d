package agents_test

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit/browser"
)

// page watches the load balancer and the nodes of its backends in a browser: rates of real
// traffic, the steps of a Service, and a sampled drop that is traced.
func (l *looking) page(t *testing.T) {
	p := browser.Open(t, l.serveUI(t), 1360, 1000)
	contains := func(id string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			p.Wait(fmt.Sprintf(`document.getElementById(%q).textContent.includes(%q)`, id, want))
		}
	}
	contains("topology", l.balancer, "packets/s", "BGP 1/1")
	contains("verdict", "nodes answer")
	p.Wait(`[...document.querySelectorAll('#topology path.flow')].some(e => !e.textContent.endsWith(' 0 packets/s'))`)
	p.Press("2")
	contains("all-services", "default/nat", "default/tunnel", "active")
	p.Press("ArrowDown", "ArrowDown", "Enter")
	contains("detail-name", "service default/tunnel")
	contains("detail", "complete", "programmed", "advertised", l.tunnel.HTTP().String())
	p.Press("Escape", "4")
	p.Eval(fmt.Sprintf(`document.getElementById('sampled').value = %q`, l.balancer))
	p.Eval(`document.getElementById('sample').click()`)
	knock := netip.AddrPortFrom(l.tunnel.HTTP().Addr(), 9998)
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		l.knock(t, knock)
	}
	contains("samples", "no-frontend", "IPv4 "+l.ClientAddrs[0].String()+" > "+knock.Addr().String())
	contains("all-drops", "no-frontend")
	p.Eval(`document.querySelector('#samples button').click()`)
	contains("traced", "XDP_DROP, no-frontend", "parsed as UDP")
	if errors := p.Errors(); len(errors) > 0 {
		t.Errorf("console: %q", errors)
	}
}

// serveUI runs fairlead ui until the test ends, and returns the address of the page.
func (l *looking) serveUI(t *testing.T) string {
	t.Helper()
	names := []string{l.balancer}
	for _, s := range l.Servers(web) {
		names = append(names, s.Node.Name)
	}
	var agents []string
	for _, name := range names {
		agents = append(agents, name+"="+cluster.Socket(name))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, fixture.Binary, "ui", "--listen", "127.0.0.1:0", "--agents", strings.Join(agents, ","))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}
