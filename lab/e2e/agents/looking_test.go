package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/pktdump"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/topology"
)

// looking is an environment with one load balancer, and an open connection through each
// of two Services.
type looking struct {
	*fixture.World
	tunnel, nat   fixture.Spec
	balancer      string
	held, natHeld netip.AddrPort
	// server has the connection held.
	server topology.Pod
}

// TestLooking queries agents under traffic, with each command that shows what happens to
// packets.
func TestLooking(t *testing.T) {
	w := fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 2, IPv6: true}, 2)
	l := &looking{
		World: w, tunnel: fixture.Spec{Name: "tunnel", Host: 1},
		nat: fixture.Spec{Name: "nat", Host: 3, Annotations: []string{"forwarding-mode: fullnat"}},
	}
	w.HandIn(t, l.tunnel, l.nat)
	l.balancer = w.NewBalancer(t, web).Name
	l.held, l.natHeld = l.hold(t, l.tunnel.HTTP()), l.hold(t, l.nat.HTTP())
	all := []fixture.Traffic{w.Load(t, "tunnel", l.tunnel.HTTP(), 5, 20), w.Load(t, "fullnat", l.nat.HTTP(), 5, 20)}
	fixture.During(t, all, "looking", func() {
		t.Run("flows", l.flows)
		t.Run("explain", l.explained)
		t.Run("trace", l.trace)
		t.Run("drops", l.drops)
		t.Run("capture", l.capture)
		t.Run("page", l.page)
	})
}

// hold opens a connection, and returns the client's address.
func (l *looking) hold(t *testing.T, vip netip.AddrPort) netip.AddrPort {
	t.Helper()
	l.Answers(t, vip)
	conn, err := l.Lab.Host(topology.Client).Dial(t.Context(), l.ClientAddr(vip), vip)
	if err != nil {
		t.Fatal(err)
	}
	l.CloseLater(conn)
	return conn.LocalAddr().(*net.TCPAddr).AddrPort()
}

// flows finds the connections where they are tracked, and nowhere else.
func (l *looking) flows(t *testing.T) {
	for _, server := range l.Servers(web) {
		for _, f := range l.flowsAt(t, server.Node.Name, l.held) {
			l.server = server
			l.isFlow(t, f, "dsr", dataplane.Flow{
				Client: l.held, VIP: l.tunnel.HTTP(), Server: netip.AddrPortFrom(server.Addr, fixture.HTTPTarget), State: "established"})
		}
	}
	if l.server.Name == "" {
		t.Fatalf("no backend node tracks %s", l.held)
	}
	if found := l.flowsAt(t, l.balancer, l.held); len(found) > 0 {
		t.Errorf("the load balancer tracks %+v", found)
	}
	found := l.flowsAt(t, l.balancer, l.natHeld)
	if len(found) != 1 {
		t.Fatalf("the balancer has for %s %+v", l.natHeld, found)
	}
	l.isFlow(t, found[0], "balancer", dataplane.Flow{Client: l.natHeld, VIP: l.nat.HTTP(), Server: found[0].Server, State: "established"})
	if !found[0].Source.IsValid() || !slices.ContainsFunc(l.Servers(web), func(p topology.Pod) bool { return p.Addr == found[0].Server.Addr() }) {
		t.Errorf("%+v", found[0])
	}
	for host, client := range map[string]netip.AddrPort{l.server.Node.Name: l.held, l.balancer: l.natHeld} {
		table := l.table(t, host, "get", "flows", "--client", client.String())
		if lines := strings.Split(table, "\n"); len(lines) != 3 || !strings.HasPrefix(table, "AT ") || !fixture.HasAll(lines[1], []string{client.String(), "established"}) {
			t.Errorf("%s:\n%s", host, table)
		}
	}
}

// explained explains a tracked flow at a backend's node and at the load balancer.
func (l *looking) explained(t *testing.T) {
	server := netip.AddrPortFrom(l.server.Addr, fixture.HTTPTarget).String()
	for _, c := range []struct {
		host        string
		client, vip netip.AddrPort
		words       string
	}{
		{l.server.Node.Name, l.held, l.tunnel.HTTP(), "to " + server + ", established"},
		{l.balancer, l.held, l.tunnel.HTTP(), "not by this load balancer"},
		{l.balancer, l.natHeld, l.nat.HTTP(), "known flow: "},
	} {
		var chains []explain.Chain
		l.Look(t, &chains, "explain", "flow", c.client.String(), c.vip.String(), "--socket", cluster.Socket(c.host))
		if len(chains) != 1 || !chains[0].Complete || !slices.ContainsFunc(chains[0].Steps, func(s explain.Step) bool {
			return s.Step == explain.StepTracked && strings.HasPrefix(s.Programmed, c.words)
		}) {
			t.Errorf("%s explains %s to %s as %+v, want it tracked %q", c.host, c.client, c.vip, chains, c.words)
		}
	}
}

// flowAt is a flow in the output of fairlead get flows.
type flowAt struct {
	dataplane.Flow
	At string
}

func (l *looking) flowsAt(t *testing.T, host string, client netip.AddrPort) (found []flowAt) {
	t.Helper()
	l.Look(t, &found, "get", "flows", "--client", client.String(), "--socket", cluster.Socket(host))
	return found
}

func (l *looking) isFlow(t *testing.T, f flowAt, at string, want dataplane.Flow) {
	t.Helper()
	if f.At != at || f.Client != want.Client || f.VIP != want.VIP || f.Server != want.Server || f.State != want.State {
		t.Errorf("%+v, want %+v at the %s", f, want, at)
	}
}

// table returns a command's output in the default format.
func (l *looking) table(t *testing.T, host string, args ...string) string {
	t.Helper()
	stdout, stderr, code := l.Fairlead(t, "", append(args, "--socket", cluster.Socket(host))...)
	if code != 0 {
		t.Fatalf("fairlead %v: %d: %s", args, code, stderr)
	}
	return stdout
}

// traced is a trace in the output of fairlead trace.
type traced struct {
	xdp.Trace
	OutWords []string
}

// trace traces a packet with each outcome and checks the words in the output.
func (l *looking) trace(t *testing.T) {
	l.Draining[l.server.Name] = true
	l.HandIn(t, l.tunnel)
	l.InService(t, l.server, l.tunnel, func(b *status.Backend) bool { return b != nil && b.Draining && b.InService })
	old := netip.AddrPortFrom(l.server.Addr, fixture.HTTPTarget).String()
	var other topology.Pod
	for _, s := range l.Servers(web) {
		if s.Name != l.server.Name {
			other = s
		}
	}
	vip, from := l.tunnel.HTTP(), l.held.String()
	nobody := netip.AddrPortFrom(vip.Addr(), 9999).String()
	frontend := fmt.Sprintf("frontend TCP %s (Service default/tunnel): forwarding mode tunnel, scheduler maglev\n", vip)
	belongs := "the slot belongs to " + netip.AddrPortFrom(other.Addr, fixture.HTTPTarget).String()
	leaves := []string{"kernel route lookup: route found, MTU 1600\n", "sent on " + topology.Dev + " to "}
	for _, c := range []struct {
		name, verdict, drop string
		args                []string
		words, not          []string
		json                bool // check JSON too: each trace loads the programs again
	}{
		{"a SYN", "XDP_REDIRECT", "", []string{"--to", vip.String(), "--flags", "SYN"}, append([]string{
			"TCP, 40 bytes, opens a flow\n", frontend, belongs + ", which receives the new flow\n",
			fmt.Sprintf("> %s, TTL 63, IPv4, 60 bytes\n", other.Addr),
		}, leaves...), []string{"Fairlead option"}, false},
		{"of a connection", "XDP_REDIRECT", "", []string{"--to", vip.String(), "--payload", "100"}, append([]string{
			"continues a flow\n", frontend, belongs + "; a flow that it does not know may belong to " + old + "\n", "Fairlead option: " + old + "\n",
		}, leaves...), nil, true},
		{"a ping", "XDP_REDIRECT", "", []string{"--to", vip.Addr().String(), "--protocol", "icmp"},
			[]string{"continues in the program \"slow_path\"\n", "answered by the load balancer: echo reply\n", "ICMP EchoReply\n", fmt.Sprintf("IPv4 %s > %s, ", vip.Addr(), l.held.Addr())}, []string{"Fairlead option"}, false},
		{"to nobody", "XDP_DROP", "no-frontend", []string{"--to", nobody, "--flags", "SYN"},
			[]string{"the destination is a VIP, but no frontend has this port and protocol\n", "dropped: no-frontend\n"}, []string{"sent on"}, false},
		{"too big", "XDP_REDIRECT", "too-big", []string{"--to", vip.String(), "--payload", "1600"}, []string{
			frontend, belongs, "continues in the program \"slow_path\"\n", "dropped: too-big\n", "answered by the load balancer: packet too big, ", "ICMP DestinationUnreachable(FragmentationNeeded)",
			fmt.Sprintf("IPv4 %s > %s, ", vip.Addr(), l.held.Addr()), "about IPv4 " + l.held.Addr().String(),
		}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"trace", "--from", from}, c.args...)
			table := l.table(t, l.balancer, args...)
			t.Logf("fairlead %s\n%s", strings.Join(args, " "), table)
			if c.json {
				l.traceJSON(t, table, args, c.verdict, c.drop)
			}
			for _, w := range c.words {
				if !strings.Contains(table, w) {
					t.Errorf("output without %q", w)
				}
			}
			if !strings.Contains(table, ", of the same source as the traced one; it was not run\n") {
				t.Error("the output does not name the attached program")
			}
			for _, w := range c.not {
				if strings.Contains(table, w) {
					t.Errorf("unexpected output: %q", w)
				}
			}
			if want := "\nverdict   " + c.verdict + ": "; !strings.Contains(table, want) {
				t.Errorf("no %q", want)
			}
		})
	}
}

// traceJSON checks that the JSON output agrees with table.
func (l *looking) traceJSON(t *testing.T, table string, args []string, verdict, drop string) {
	t.Helper()
	var got traced
	l.Look(t, &got, append(args, "--socket", cluster.Socket(l.balancer))...)
	if got.Verdict != verdict || got.Drop != drop || got.Interface != topology.Dev || len(got.Would) > 0 || !slices.Equal(pktdump.Lines(got.Out), got.OutWords) {
		t.Errorf("%+v", got)
	}
	for _, s := range got.Steps {
		if s.Note == "" || !strings.Contains(table, s.Text+"\n") {
			t.Errorf("the table has no step %+v", s)
		}
	}
}

// drops follows drops while packets are dropped.
func (l *looking) drops(t *testing.T) {
	knock := netip.AddrPortFrom(l.tunnel.HTTP().Addr(), 9998)
	follow := []string{"drops", "--follow", "no-frontend", "--count", "1", "--socket", cluster.Socket(l.balancer)}
	said := l.until(t, func() { l.knock(t, knock) }, follow...)
	if line := fixture.LastLine(said); !strings.HasPrefix(said, "REASON") || !fixture.HasAll(line, []string{
		" " + topology.Dev + " cpu ", " no-frontend, ", "IPv4 " + l.ClientAddrs[0].String() + " > " + knock.Addr().String(), "UDP ", " > 9998, 5 bytes of data"}) {
		t.Errorf("output:\n%s", said)
	}
	var e struct {
		xdp.Event
		Packet []string
	}
	often := func() {
		for range 20 { // many at the same time, of which one is printed
			l.knock(t, knock)
		}
	}
	if err := json.Unmarshal([]byte(l.until(t, often, append(follow, "-o", "json")...)), &e); err != nil {
		t.Fatal(err)
	}
	if e.Reason != "no-frontend" || e.Interface != topology.Dev || time.Since(e.Time).Abs() > 2*fixture.Within ||
		!slices.Equal(e.Packet, pktdump.Lines(e.Data)) || !fixture.HasAll(strings.Join(e.Packet, "\n"), []string{knock.Addr().String(), "> 9998"}) {
		t.Errorf("%+v", e)
	}
	var counts []struct {
		Reason  string
		Packets uint64
	}
	l.Look(t, &counts, "drops", "no-frontend", "--socket", cluster.Socket(l.balancer))
	if len(counts) != 1 || counts[0].Packets < 2 {
		t.Errorf("counted: %+v", counts)
	}
}

// knock sends a datagram without waiting for an answer.
func (l *looking) knock(t *testing.T, to netip.AddrPort) {
	t.Helper()
	err := l.Lab.Host(topology.Client).Do(func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(l.ClientAddr(to), 0)), net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte("knock"))
		return errors.Join(err, conn.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// until runs a command, calls do repeatedly until it ends, and returns its output.
func (l *looking) until(t *testing.T, do func(), args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Within)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, fixture.Binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("fairlead %v: %v: %s%s", args, err, &out, &errs)
			}
			return out.String()
		case <-time.After(50 * time.Millisecond):
			do()
		}
	}
}

// capture captures the packets of one client before and after the load balancer handles
// them.
func (l *looking) capture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "looking.pcapng")
	vip, client := l.tunnel.HTTP(), l.ClientAddrs[0]
	l.until(t, func() { l.Requests(t, 1, vip) }, "capture", "-o", path, "--vip", vip.Addr().String(), "--client", client.String(),
		"--port", fmt.Sprint(vip.Port()), "--count", "3", "--socket", cluster.Socket(l.balancer))
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var before []string
	packets := 0
	for ; ; packets++ {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		nic, err := r.Interface(info.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		words := pktdump.Lines(data)
		inner := fmt.Sprintf("IPv4 %s > %s, ", client, vip.Addr())
		switch {
		case packets%2 == 0:
			if before = words; nic.Name != topology.Dev+" in" || len(words) < 3 || !strings.HasPrefix(words[1], inner) {
				t.Errorf("frame %d, %s: %q", packets, nic.Name, words)
			}
		case nic.Name != topology.Dev+" out XDP_REDIRECT" || len(words) < 4 || !strings.Contains(words[1], ", IPv4, ") ||
			!slices.Equal(words[len(words)-2:], before[len(before)-2:]):
			t.Errorf("frame %d, %s: %q, previously %q", packets, nic.Name, words, before)
		}
	}
	if packets != 6 {
		t.Errorf("%d frames, want 3 packets before and after", packets)
	}
}
