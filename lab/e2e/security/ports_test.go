package security

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
)

// elsewhere are ports of the table whose roles need an API server: their number is
// compared with the default of the flag.
var elsewhere = map[string]string{"tcp 10256": config.DefaultAgent().ServiceProxy.Health}

// TestPorts checks that docs/security.md lists every port on which a role listens, and no
// others, and which of them are on 127.0.0.1.
func TestPorts(t *testing.T) {
	p := newPlace(t)
	documented := documentedPorts(t)
	for port, address := range elsewhere {
		if !strings.HasSuffix(address, ":"+strings.TrimPrefix(port, "tcp ")) || documented[port] == "" {
			t.Errorf("port %s is documented as %q, the default is %s", port, documented[port], address)
		}
		delete(documented, port)
	}
	p.listeners()
	testkit.Eventually(t, fixture.Within, func() error {
		bound := map[string]bool{}
		for _, process := range p.running {
			for port, at := range sockets(t, process) {
				bound[port] = true
				if documented[port] == "" {
					t.Fatalf("port %s is not in docs/security.md", port)
				}
				if documented[port] == "127.0.0.1" && at.String() != "127.0.0.1" {
					t.Fatalf("port %s is bound to %s", port, at)
				}
			}
		}
		for port := range documented {
			if !bound[port] {
				return fmt.Errorf("no process listens on port %s, which docs/security.md documents", port)
			}
		}
		return nil
	})
}

// listeners runs all roles that need no API server, with the flags that make them listen.
func (p *place) listeners() {
	p.t.Helper()
	must(p.t, os.Mkdir(p.path("services"), 0o755))
	p.secret("services/web.yaml", manifests)
	p.keep(p.start("router", "router", "--router-id", "10.0.0.254", "--listen-range", "10.0.0.0/24", "--socket", p.path("router.sock")))
	p.keep(p.start("lb", "agent", "--manifest-dir", p.path("services"), "--interface", "eth0", "--peer", "10.0.0.254", "--l2-interfaces", "eth0",
		"--l2-members", "10.0.0.1,10.0.0.2", "--role", "balancer,dsr", "--metrics-address", "127.0.0.1:9474", "--socket", p.path("agent.sock")))
	p.keep(p.start("pod", "reflector", "--router-id", "10.0.0.253", "--client-range", "10.0.0.0/24", "--router-range", "10.0.0.254", "--socket", p.path("reflector.sock")))
	cert, key := p.keys("lb")
	p.keep(p.start("lb", "vdn", "controller", "--data", p.path("vdn"), "--federation-listen", ":7474",
		"--federation-cert", cert, "--federation-key", key, "--federation-ca", p.path("pki/ca.crt")))
	p.keep(p.start("lb", "vdn", "agent", "--name", "lb", "--uplink", "eth0=1G", "--data", p.path("node"), "--socket", p.path("node.sock")))
}

func (p *place) keep(process *lab.Process) { p.running = append(p.running, process) }

var portRow = regexp.MustCompile(`(?m)^\| ((?:tcp|udp) \d+) \| [^|]* \| ([^| ]+)`)

// documentedPorts returns the addresses that the page lists for each port.
func documentedPorts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/security.md")
	must(t, err)
	_, table, _ := strings.Cut(string(text), "<!-- ports -->")
	table, _, _ = strings.Cut(table, "<!-- end -->")
	all := map[string]string{}
	for _, row := range portRow.FindAllStringSubmatch(table, -1) {
		all[row[1]] = row[2]
	}
	if len(all) < 5 {
		t.Fatalf("docs/security.md has only the ports %v", all)
	}
	return all
}

// states are socket states in /proc/net: a listening TCP socket, and an unconnected UDP
// socket (include/net/tcp_states.h).
var states = map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}

// sockets returns the ports on which a process, and no other in its namespace, accepts
// data. Ephemeral ports belong to its own requests.
func sockets(t *testing.T, process *lab.Process) map[string]netip.Addr {
	t.Helper()
	own := inodes(t, process.PID())
	all := map[string]netip.Addr{}
	for protocol, state := range states {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", process.PID(), protocol))
		must(t, err)
		for line := range strings.Lines(string(text)) {
			// sl local_address rem_address st ... uid timeout inode (proc_pid_net(5))
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != state || !slices.Contains(own, f[9]) {
				continue
			}
			at := address(t, f[1])
			if at.Port() >= 32768 {
				continue
			}
			all[fmt.Sprintf("%s %d", strings.TrimSuffix(protocol, "6"), at.Port())] = at.Addr()
		}
	}
	return all
}

// inodes returns those of a process's sockets.
func inodes(t *testing.T, pid int) (all []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		to, _ := os.Readlink(dir + "/" + f.Name()) // it may be closed by now
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			all = append(all, strings.TrimSuffix(inode, "]"))
		}
	}
	return all
}

// address parses an address of /proc/net: words in the machine's byte order, here
// little-endian.
func address(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	must(t, err)
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	addr, _ := netip.AddrFromSlice(b)
	var n uint16
	_, err = fmt.Sscanf(port, "%x", &n)
	must(t, err)
	return netip.AddrPortFrom(addr.Unmap(), n)
}
