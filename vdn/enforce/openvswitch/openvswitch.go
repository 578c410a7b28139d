// Package openvswitch enforces virtually dedicated networks on an Open vSwitch bridge, with
// flows and meters of OpenFlow 1.3 and the OVS matches for hop limits and fragments. Pods
// and uplinks are its ports. The bridge must be used exclusively; it forwards permitted
// traffic as a learning switch. It rejects by name what OpenFlow does not support
// (guarantees).
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

// Config configures a Switch.
type Config struct {
	Bridge string
	// RunDir is the directory of the daemons' sockets; empty for the distribution's
	// default.
	RunDir string
	// Uplinks are ports of the bridge.
	Uplinks []vdn.Uplink
}

// Switch implements enforce.Enforcer.
type Switch struct {
	cfg Config

	mu   sync.Mutex
	plan vdn.Plan
}

var _ enforce.Enforcer = (*Switch)(nil)

// Open checks that the bridge exists and changes nothing before the first Apply.
func Open(cfg Config) (*Switch, error) {
	s := &Switch{cfg: cfg}
	if _, err := s.vsctl(context.Background(), "br-exists", cfg.Bridge); err != nil {
		return nil, fmt.Errorf("bridge %s: %w: create it (ovs-vsctl add-br %s) and start openvswitch-switch", cfg.Bridge, err, cfg.Bridge)
	}
	return s, nil
}

// Means implements enforce.Enforcer. Meters cap but do not guarantee.
func (*Switch) Means() enforce.Means { return means }

var means = enforce.Means{
	Name: "openvswitch", Cap: true, Access: true, Spoof: true,
	Notes: []string{
		"no guarantees: meters only limit rates, and limiting the other networks would waste the bandwidth that a network does not use",
		"pods are identified by bridge port (an attachment's device), MAC and addresses: pods that share a port can use each other's addresses",
		"pods with macvlan devices on one node bypass the bridge when they send to each other: give each pod its own port",
		"a network's max applies to all uplinks together; the bridge must not be used for anything else",
		"gateways are not supported: a bridge forwards frames, and both directions are checked at the pods' own bridges",
		"ICMP errors of external routers are dropped, including those of path MTU discovery, because no flow matches the packets that they quote: add the routers to `allowedCIDRs`, or give the network an `mtu` that fits the path",
		"the length of neighbor discovery packets and the content of router solicitations are not checked: pods can use them as a covert channel",
		"pods receive no broadcast or multicast from outside; frames to a MAC address that the bridge has not learned are flooded to all ports, including those of pods",
	},
}

// Degraded implements enforce.Enforcer. The package uses no optional kernel features.
func (*Switch) Degraded() []string { return nil }

// Apply implements enforce.Enforcer.
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
			missing = append(missing, fmt.Errorf("uplink %s is not a port of bridge %s: run ovs-vsctl add-port %s %s", u.Device, s.cfg.Bridge, s.cfg.Bridge, u.Device))
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
	// Flows refer to meters: add new meters first, and remove old ones last.
	if err := s.writeMeters(ctx, t.meters); err != nil {
		return errors.Join(append(missing, err)...)
	}
	if _, err := s.ofctl(ctx, strings.Join(t.flows, "\n")+"\n", "--bundle", "replace-flows", s.cfg.Bridge, "-"); err != nil {
		return errors.Join(append(missing, err)...)
	}
	return errors.Join(append(missing, s.removeMeters(ctx, t.meters))...)
}

// ports returns the ports of the bridge, including its own.
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

// present returns the attachments whose device is a port. A device that is gone with its
// namespace is not an error.
func present(all []vdn.Attachment, ports map[string]bool) (there []vdn.Attachment, missing []error) {
	for _, a := range all {
		switch {
		case a.NetNS == "":
		case ports[a.Device]:
			there = append(there, a)
		default:
			if _, err := os.Stat(a.NetNS); err == nil {
				missing = append(missing, &enforce.AttachmentError{ID: a.ID, Err: fmt.Errorf("device %s is not a port of the bridge: add it with ovs-vsctl add-port", a.Device)})
			}
		}
	}
	return there, missing
}

// Close does nothing.
func (*Switch) Close() error { return nil }

// Remove turns the bridge back into a learning switch.
func (s *Switch) Remove() error {
	return s.Apply(context.Background(), vdn.Plan{})
}

func (s *Switch) vsctl(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, "", "ovs-vsctl", append([]string{"--timeout=10"}, args...)...)
}

func (s *Switch) ofctl(ctx context.Context, input string, args ...string) (string, error) {
	return s.run(ctx, input, "ovs-ofctl", append([]string{"-O", "OpenFlow13", "--names", "--timeout=10"}, args...)...)
}

// dump runs a command of ovs-ofctl that prints what the bridge has, and parses its output.
func dump[T any](ctx context.Context, s *Switch, command string, parse func(string) T) (all T, err error) {
	out, err := s.ofctl(ctx, "", command, s.cfg.Bridge)
	if err != nil {
		return all, err
	}
	return parse(out), nil
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
