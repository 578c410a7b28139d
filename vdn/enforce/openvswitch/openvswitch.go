// Package openvswitch enforces virtually dedicated networks on a bridge of Open
// vSwitch, by flows and meters of OpenFlow 1.3, and its own matches of hop limits and
// fragments: pods and uplinks are its ports. The bridge must be ours alone; it forwards as a
// learning switch what the flows let through. What is not OpenFlow's (guarantees)
// is refused by name.
package openvswitch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// Config says which bridge it is.
type Config struct {
	Bridge string
	// RunDir is where the daemons' sockets are; the distribution's where empty.
	RunDir string
	// Uplinks are ports of the bridge.
	Uplinks []vdn.Uplink
}

// Switch is an enforce.Enforcer.
type Switch struct {
	cfg Config

	mu   sync.Mutex
	plan vdn.Plan
}

var _ enforce.Enforcer = (*Switch)(nil)

// Open looks for the bridge; nothing is changed before the first Apply.
func Open(cfg Config) (*Switch, error) {
	s := &Switch{cfg: cfg}
	if _, err := s.vsctl(context.Background(), "br-exists", cfg.Bridge); err != nil {
		return nil, fmt.Errorf("bridge %s: %w: make it (ovs-vsctl add-br %s) and start openvswitch-switch", cfg.Bridge, err, cfg.Bridge)
	}
	return s, nil
}

// Means: meters cap.
func (*Switch) Means() enforce.Means { return means }

var means = enforce.Means{
	Name: "openvswitch", Cap: true, Access: true, Spoof: true,
	Notes: []string{
		"no guarantee: meters cap, and a cap on the others is none either, as what is not used is not lent",
		"pods are known by the bridge's port (an attachment's device), MAC and addresses: pods that share a port can take each other's",
		"pods on a macvlan of one node talk past the bridge: give each a port of its own",
		"a network's max is one for all uplinks together; the bridge must be ours alone",
		"not on gateways: a bridge forwards frames, and pods' own bridges check both ways",
		"no errors of ICMP from routers outside, those that tell a path's MTU among them: no flow sees what they quote; allow the routers in `outside`, or give the network an `mtu` that fits the path",
		"of neighbour discovery neither the length is checked, nor with what routers are solicited: pods that want to can pass notes by it",
		"pods hear no broadcast and multicast from outside; what is for a MAC address that the bridge has not learned floods to all ports, pods' among them",
	},
}

// Degraded is enforce.Enforcer's: it asks the kernel for nothing that is optional.
func (*Switch) Degraded() []string { return nil }

// Apply is enforce.Enforcer's.
func (s *Switch) Apply(ctx context.Context, p vdn.Plan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = p
	ports, err := s.ports(ctx)
	if err != nil {
		return err
	}
	local, missing := present(p.Local, ports)
	var uplinks []string
	for _, u := range s.cfg.Uplinks {
		if !ports[u.Device] {
			missing = append(missing, fmt.Errorf("uplink %s: it is no port of bridge %s: ovs-vsctl add-port %s %s", u.Device, s.cfg.Bridge, s.cfg.Bridge, u.Device))
			continue
		}
		uplinks = append(uplinks, u.Device)
	}
	others := maps.Clone(ports)
	for _, a := range p.Local {
		delete(others, a.Device)
	}
	t := translate(p.Slices, local, uplinks, slices.Collect(maps.Keys(others)))
	missing = append(missing, s.Means().Unable(p), t.err)
	// Flows name meters: those that come are there before, those that go after.
	if err := s.writeMeters(ctx, t.meters); err != nil {
		return errors.Join(append(missing, err)...)
	}
	if _, err := s.ofctl(ctx, strings.Join(t.flows, "\n")+"\n", "--bundle", "replace-flows", s.cfg.Bridge, "-"); err != nil {
		return errors.Join(append(missing, err)...)
	}
	return errors.Join(append(missing, s.removeMeters(ctx, t.meters))...)
}

// ports of the bridge, its own among them.
func (s *Switch) ports(ctx context.Context) (map[string]bool, error) {
	out, err := s.vsctl(ctx, "list-ports", s.cfg.Bridge)
	if err != nil {
		return nil, err
	}
	ports := map[string]bool{s.cfg.Bridge: true}
	for _, name := range strings.Fields(out) {
		ports[name] = true
	}
	return ports, nil
}

// present are the attachments whose device is a port. One that is gone with its
// namespace is no error.
func present(all []vdn.Attachment, ports map[string]bool) (there []vdn.Attachment, missing []error) {
	for _, a := range all {
		switch {
		case a.NetNS == "":
		case ports[a.Device]:
			there = append(there, a)
		default:
			if _, err := os.Stat(a.NetNS); err == nil {
				missing = append(missing, &enforce.AttachmentError{ID: a.ID, Err: fmt.Errorf("device %s is no port of the bridge: pods need one there", a.Device)})
			}
		}
	}
	return there, missing
}

// Close has nothing to let go of.
func (*Switch) Close() error { return nil }

// Remove leaves the bridge a learning switch.
func (s *Switch) Remove() error {
	return s.Apply(context.Background(), vdn.Plan{})
}

func (s *Switch) vsctl(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, "", "ovs-vsctl", append([]string{"--timeout=10"}, args...)...)
}

func (s *Switch) ofctl(ctx context.Context, input string, args ...string) (string, error) {
	return s.run(ctx, input, "ovs-ofctl", append([]string{"-O", "OpenFlow13", "--names", "--timeout=10"}, args...)...)
}

func (s *Switch) run(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	if s.cfg.RunDir != "" {
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.cfg.RunDir, "OVS_DBDIR="+s.cfg.RunDir, "DB_SOCK="+filepath.Join(s.cfg.RunDir, "db.sock"))
		if name == "ovs-vsctl" {
			cmd.Args = append([]string{name, "--db=unix:" + filepath.Join(s.cfg.RunDir, "db.sock")}, args...)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
