package quickstart_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/checkout"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// addresses are those of the page's picture.
var addresses = map[string]string{"lb1": "10.0.0.105", "lb2": "10.0.0.106", "web1": "10.0.0.121", "web2": "10.0.0.122"}

// quickstart is the page, and its machines by name.
type quickstart struct {
	steps    map[string]step
	machines map[string]*machine
}

// TestQuickstart follows the page from the first file to a VIP that answers a client, and
// then tries to switch off a load balancer, as the page's introduction promises.
func TestQuickstart(t *testing.T) {
	q := newQuickstart(t)
	q.doctor(t)
	q.files(t)
	for _, name := range []string{"web1", "web2"} {
		q.machines[name].daemon(t, q.steps["Start the backends' agents"].commands(t, 0)[0])
	}
	q.machines["router"].daemon(t, q.steps["Start the router"].commands(t, 0)[0])
	balancers := map[string]*lab.Process{}
	for _, name := range []string{"lb1", "lb2"} {
		balancers[name] = q.machines[name].daemon(t, q.steps["Start the load balancers"].commands(t, 0)[0])
	}
	q.shows(t, map[string][]string{
		"lb1":    {"problems    none", "active", "2/2", "10.1.1.1"},
		"lb2":    {"problems    none", "active", "2/2", "10.1.1.1"},
		"router": {"10.0.0.105", "10.0.0.106"},
	})
	q.answers(t)
	if err := balancers["lb1"].Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-balancers["lb1"].Done()
	q.answers(t)
}

func newQuickstart(t *testing.T) *quickstart {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	topology := lab.Topology{
		Hosts:    []lab.HostSpec{{Name: "router", Forward: true}, {Name: "client"}},
		Switches: []lab.SwitchSpec{{Name: "segment"}},
		Links: []lab.Link{
			{A: lab.At("router", "eth0", "10.0.0.110/24"), B: lab.Port("segment")},
			{A: lab.At("router", "eth1", "192.168.0.1/24"), B: lab.At("client", "eth0", "192.168.0.2/24").Via("192.168.0.1", "default")},
		},
	}
	for name, addr := range addresses {
		topology.Hosts = append(topology.Hosts, lab.HostSpec{Name: name})
		topology.Links = append(topology.Links, lab.Link{A: lab.At(name, "eth0", addr+"/24").Via("10.0.0.110", "default"), B: lab.Port("segment")})
	}
	t.Cleanup(func() { testkit.NoLeftovers(t) }) // after the lab has ended
	l := labtest.Build(t, topology)
	q := &quickstart{steps(t, filepath.Join(root, "docs/getting-started.md")), map[string]*machine{}}
	for _, h := range topology.Hosts {
		q.machines[h.Name] = newMachine(t, l.Host(h.Name))
	}
	q.serve(t)
	t.Cleanup(func() {
		for name, m := range q.machines {
			if text, err := os.ReadFile(m.log); err == nil && t.Failed() {
				t.Logf("log of %s:\n%s", name, text)
			}
		}
	})
	return q
}

// serve starts the web servers that the page takes for granted.
func (q *quickstart) serve(t *testing.T) {
	t.Helper()
	for _, name := range []string{"web1", "web2"} {
		ln, err := q.machines[name].Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		load.Serve(name, ln)
	}
}

// doctor runs the page's commands, in its order: load balancer, backend, router.
func (q *quickstart) doctor(t *testing.T) {
	t.Helper()
	for i, name := range []string{"lb1", "web1", "router"} {
		out, err := q.machines[name].run(q.steps["Install the binary"].commands(t, 1)[i])
		if err != nil {
			t.Errorf("something is broken: %v: %s", err, out)
		}
	}
}

// files writes the manifests to the folder that the page names.
func (q *quickstart) files(t *testing.T) {
	t.Helper()
	describe := q.steps["Describe the service"]
	folder := regexp.MustCompile("folder `([^`]+)` on the load balancers and on the backends").FindStringSubmatch(describe.text)
	files := describe.files()
	if folder == nil || len(files) != 2 {
		t.Fatalf("the page names no folder, or not two files: %v", files)
	}
	for name := range addresses {
		for file, text := range files {
			q.machines[name].write(t, filepath.Join(folder[1], file), text)
		}
	}
}

// shows waits until the page's commands show what the page says, for each machine.
func (q *quickstart) shows(t *testing.T, all map[string][]string) {
	t.Helper()
	commands := q.steps["Check"].commands(t, 0)
	for name, want := range all {
		run := commands
		if name == "router" {
			run = []string{"fairlead get routes"} // the page says so in the text
		}
		testkit.Eventually(t, fixture.Within, func() error {
			var all strings.Builder
			for _, c := range run {
				out, err := q.machines[name].run(c)
				if err != nil {
					return err
				}
				all.WriteString(out)
			}
			for _, w := range want {
				if !strings.Contains(all.String(), w) {
					return fmt.Errorf("%s does not show %q:\n%s", name, w, &all)
				}
			}
			return nil
		})
	}
}

var client = regexp.MustCompile("From a client behind the router, `curl (http://[^`]+)`")

// answers makes requests from the client until both backends have answered.
func (q *quickstart) answers(t *testing.T) {
	t.Helper()
	url := client.FindStringSubmatch(q.steps["Check"].text)
	if url == nil {
		t.Fatal("the page has no request of a client")
	}
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return q.machines["client"].Dial(ctx, netip.Addr{}, netip.MustParseAddrPort(addr))
		},
	}}
	seen := map[string]int{}
	testkit.Eventually(t, fixture.Within, func() error {
		r, err := c.Get(url[1])
		if err != nil {
			return err
		}
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if seen[r.Header.Get(load.ServerHeader)]++; len(seen) < 2 {
			return fmt.Errorf("only these have answered: %v", seen)
		}
		return nil
	})
}
