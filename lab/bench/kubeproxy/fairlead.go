package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	dpproxy "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Where the agent pins its BPF objects, and its status socket.
const bpffs = "/sys/fs/bpf"

var (
	pins   = filepath.Join(bpffs, "fairlead")
	socket = filepath.Join(sandbox.WorkDir, "agent.sock")
)

// fairlead is the agent with the role proxy.
type fairlead struct {
	cluster *cluster
	agent   *kube.Program
	reader  *dpproxy.Reader
}

func newFairlead(e *experiment, c *cluster, flags ...string) *fairlead {
	folder, name := filepath.Split(e.Binary)
	return &fairlead{cluster: c, agent: c.Program(folder, name, nil, append([]string{
		"agent", "--kubernetes", "--kubeconfig", c.Kubeconfig, "--role", "proxy", "--node", nodeName,
		"--cgroup", e.ground.Cgroup, "--bpffs", bpffs, "--socket", socket, "--health-address", "",
	}, flags...)...)}
}

func (f *fairlead) name() string           { return "fairlead" }
func (f *fairlead) program() *kube.Program { return f.agent }
func (f *fairlead) pause() time.Duration   { return 200 * time.Microsecond }

// own is the number of Services that an API server creates itself: kubernetes.
const own = 1

// keyOf returns the key of a Service.
func keyOf(a netip.Addr) proxy.Key {
	return proxy.Key{Addr: a, Port: testbed.ServicePort, Protocol: service.TCP}
}

// open opens the agent's pinned maps. It returns false if they do not exist yet.
func (f *fairlead) open() (bool, error) {
	if f.reader != nil {
		return true, nil
	}
	r, err := dpproxy.OpenReader(filepath.Join(pins, "proxy"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	f.reader = r
	return err == nil, err
}

func (f *fairlead) complete() (bool, error) {
	if ok, err := f.open(); !ok {
		return false, err
	}
	// Counting takes time proportional to the size, so look up one Service first.
	if _, found, err := f.reader.Get(keyOf(kube.ServiceAddr(f.cluster.services - 1))); !found {
		return false, err
	}
	n, _, err := f.reader.Entries()
	return n >= f.cluster.services+own, err
}

func (f *fairlead) verify() error {
	if ok, err := f.open(); !ok {
		return errors.Join(err, errors.New("nothing is pinned"))
	}
	seeded := make(map[proxy.Key]int, f.cluster.services)
	for i := range f.cluster.services {
		seeded[keyOf(kube.ServiceAddr(i))] = i
	}
	right := 0
	for h, err := range f.reader.List() {
		if err != nil {
			return err
		}
		i, known := seeded[h.Key]
		if !known {
			continue
		}
		want := f.cluster.endpointsOf(i)
		slices.SortFunc(want, netip.Addr.Compare)
		if !slices.EqualFunc(h.Inside.Targets, want, func(t proxy.Target, a netip.Addr) bool {
			return t.Addr == netip.AddrPortFrom(a, testbed.Port)
		}) {
			return fmt.Errorf("%s has %v in the kernel, want %v", h.Key, h.Inside.Targets, want)
		}
		right++
	}
	if right != f.cluster.services {
		return fmt.Errorf("%d of %d Services are in the kernel", right, f.cluster.services)
	}
	return nil
}

func (f *fairlead) held(all []pair) ([]bool, error) {
	out := make([]bool, len(all))
	for i, p := range all {
		h, found, err := f.reader.Get(keyOf(p.service))
		if err != nil {
			return nil, err
		}
		out[i] = found && slices.ContainsFunc(h.Inside.Targets, func(t proxy.Target) bool { return t.Addr.Addr() == p.endpoint })
	}
	return out, nil
}

// clear removes the pins, which were the last references to the maps.
func (f *fairlead) clear() error {
	var err error
	if f.reader != nil {
		err = f.reader.Close()
		f.reader = nil
	}
	return errors.Join(err, os.RemoveAll(pins))
}

// state returns the agent's status of the service proxy.
func (f *fairlead) state(ctx context.Context) (status.ServiceProxy, error) {
	s, err := status.Fetch(ctx, socket)
	if err == nil && s.ServiceProxy == nil {
		err = errors.New("the agent reports no service proxy")
	}
	if err != nil {
		return status.ServiceProxy{}, err
	}
	return *s.ServiceProxy, nil
}

// synced reports whether the agent answers, has received all Services and has nothing
// left to write.
func (f *fairlead) synced(ctx context.Context) bool {
	s, err := f.state(ctx)
	return err == nil && s.Synced && s.Refused == 0 && s.Services >= f.cluster.services
}
