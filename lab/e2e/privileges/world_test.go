package privileges

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) {
	if err := kube.Prepare("etcd", "kube-apiserver"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fixture.Main(m)
}

// place is the network in which a role runs, created for each run:
//
//	client 10.0.0.9 ──────┐          ┌── lb 10.0.0.1
//	                      ├─ switch ─┤
//	router 10.0.0.254 ────┘          └── web 10.0.0.21
//
// The client sends packets for the VIP to lb. pod is a host without a device.
type place struct {
	t   *testing.T
	lab *lab.Lab
	dir string
}

var vip = netip.MustParseAddrPort("10.1.1.1:80")

func newPlace(t *testing.T) *place {
	t.Helper()
	top := lab.Topology{Switches: []lab.SwitchSpec{{Name: "switch"}}, Hosts: []lab.HostSpec{{Name: "pod"}}}
	for name, n := range map[string]int{"client": 9, "lb": 1, "web": 21, "router": 254} {
		end := lab.At(name, "eth0", fmt.Sprintf("10.0.0.%d/24", n)).ForXDP()
		if name == "client" {
			end = end.Via("10.0.0.1", "10.1.1.1/32")
		}
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: name})
		top.Links = append(top.Links, lab.Link{A: end, B: lab.Port("switch").ForXDP()})
	}
	dir := t.TempDir() // removed after the lab, whose processes write to it
	p := &place{t: t, lab: labtest.Build(t, top), dir: dir}
	ln, err := p.lab.Host("web").Listen("tcp", ":80")
	must(t, err)
	server := load.Serve("web", ln)
	t.Cleanup(func() { must(t, server.Kill()) })
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// services writes a folder with the Service of the VIP, and returns its path.
func (p *place) services(address, method string) string {
	p.t.Helper()
	dir := filepath.Join(p.dir, "services")
	must(p.t, os.MkdirAll(dir, 0o755))
	must(p.t, os.WriteFile(filepath.Join(dir, "web.yaml"), fmt.Appendf(nil, `apiVersion: v1
kind: Service
metadata:
  name: web
  annotations: {fairlead.io/addresses: %s, fairlead.io/forwarding-mode: %s, fairlead.io/health-check: none}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.21]}]
`, address, method), 0o644))
	return dir
}

// process is a running fairlead, or its plugin.
type process struct {
	*lab.Process
	place *place
	name  string
	said  *testkit.Output
}

// start runs fairlead in a host with these capabilities.
func (p *place) start(host string, caps privilege.Set, args ...string) *process {
	p.t.Helper()
	return p.startCommand(host, caps, exec.Command(fixture.Binary, args...))
}

func (p *place) startCommand(host string, caps privilege.Set, cmd *exec.Cmd) *process {
	p.t.Helper()
	started := &process{place: p, name: host, said: &testkit.Output{}}
	if cmd.Stdout == nil {
		cmd.Stdout = started.said
	}
	cmd.Stderr = started.said
	testkit.Limit(cmd, caps)
	var err error
	started.Process, err = p.lab.Host(host).Start(cmd)
	must(p.t, err)
	return started
}

// agent is start for an agent, with the common arguments.
func (p *place) agent(host string, caps privilege.Set, args ...string) *process {
	p.t.Helper()
	own := []string{"agent", "--node", host, "--socket", p.socket(host), "--bpffs", p.bpffs(host), "--bfd=false", "--graceful-shutdown-period=0s"}
	p.t.Cleanup(func() { os.RemoveAll(p.bpffs(host)) })
	return p.start(host, caps, append(own, args...)...)
}

func (p *place) socket(host string) string { return filepath.Join(p.dir, host+".sock") }

// bpffs is a folder on the sandbox's BPF file system.
func (p *place) bpffs(host string) string {
	return filepath.Join("/sys/fs/bpf", filepath.Base(p.dir)+host)
}

// complaint matches the output of a process when the kernel rejects a call.
var complaint = regexp.MustCompile(`operation not permitted|permission denied|EPERM|EACCES`)

// until waits until a goal is reached, and returns nil; or until the process ends or
// reports an error of the kernel, and returns its output. It fails the test if neither
// happens.
func (c *process) until(goal func() error) error {
	c.place.t.Helper()
	var err error
	for deadline := time.Now().Add(fixture.Within); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ended := false
		select {
		case <-c.Done():
			ended = true
		default:
		}
		text := c.said.String()
		if complaint.MatchString(text) {
			// If the process is about to exit, wait for its last output.
			select {
			case <-c.Done():
			case <-time.After(time.Second):
			}
			return errors.New(c.said.String())
		}
		if err = goal(); err == nil {
			return nil
		}
		if ended {
			return fmt.Errorf("%s exited: %w; output:\n%s", c.name, err, c.said)
		}
	}
	c.place.t.Fatalf("%s neither works nor reports an error: %v; output:\n%s", c.name, err, c.said)
	return nil
}

// succeeds waits for the end of a command, and returns its output if it failed.
func (c *process) succeeds() error {
	if err := c.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, c.said)
	}
	return nil
}

// answered sends a request to the VIP from the client.
func (p *place) answered(at netip.AddrPort) error {
	name, err := fixture.AskHTTP(p.t.Context(), p.lab.Host("client"), at)
	if err == nil && name != "web" {
		err = fmt.Errorf("%s answers", name)
	}
	return err
}

// established checks the only session of an agent, router or reflector.
func (p *place) established(host string) error {
	s, err := status.Fetch(p.t.Context(), p.socket(host))
	if err != nil {
		return err
	}
	if len(s.Peers) != 1 || s.Peers[0].State != "established" {
		return fmt.Errorf("peers of %s are %+v", host, s.Peers)
	}
	return nil
}
