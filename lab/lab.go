// Package lab creates networks of network namespaces from a Go value that reads like a
// drawing: hosts, switches, links, routes, SNAT, shaping. Hosts and links may be added
// and removed while it runs, and a link may be cut silently. It needs root and its own
// /run/netns (lab/sandbox provides both). Load balancing does not belong here, but in
// lab/topology and the demo.
package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Lab is a running Topology. Its methods are safe for concurrent use.
type Lab struct {
	mu       sync.Mutex
	title    string
	hosts    []*Host
	switches []*ethernetSwitch
	links    []*link
	panel    *patchPanel // created with the first cuttable link
	made     int         // names for ports and bridges
}

// Build creates a topology. If it fails, it leaves nothing behind.
func Build(ctx context.Context, t Topology) (*Lab, error) {
	l := &Lab{title: t.Title}
	if err := l.Add(ctx, t); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Add creates more hosts, switches and links, which may connect to existing ones. If it
// fails, it removes what it has created.
func (l *Lab) Add(ctx context.Context, part Topology) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := part.check(l.names()); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	hosts, switches, links := len(l.hosts), len(l.switches), len(l.links)
	err := l.add(ctx, part)
	if err == nil {
		return nil
	}
	for _, k := range slices.Clone(l.links[links:]) {
		err = errors.Join(err, l.removeLink(k))
	}
	for _, h := range slices.Clone(l.hosts[hosts:]) {
		err = errors.Join(err, l.removeHost(h))
	}
	for _, s := range l.switches[switches:] {
		err = errors.Join(err, s.close())
	}
	l.switches = l.switches[:switches]
	return fmt.Errorf("lab: %w", err)
}

// add creates things in the order of their dependencies: routes need all addresses,
// sysctls may name interfaces.
func (l *Lab) add(ctx context.Context, part Topology) error {
	var hosts []*Host
	for _, spec := range part.Hosts {
		h, err := newHost(spec)
		if err != nil {
			return err
		}
		l.hosts = append(l.hosts, h)
		hosts = append(hosts, h)
	}
	for _, spec := range part.Switches {
		s, err := newSwitch(spec)
		if err != nil {
			return err
		}
		l.switches = append(l.switches, s)
	}
	for _, spec := range part.Links {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.addLink(spec); err != nil {
			return fmt.Errorf("link %s %s - %s %s: %w", spec.A.Host, spec.A.Dev, spec.B.Host, spec.B.Dev, err)
		}
	}
	for _, spec := range part.Links {
		for _, e := range []End{spec.A, spec.B} {
			if err := l.ready(ctx, e); err != nil {
				return fmt.Errorf("end %s %s: %w", e.Host, e.Dev, err)
			}
		}
	}
	for _, h := range hosts {
		if err := h.finish(ctx); err != nil {
			return fmt.Errorf("host %s: %w", h.Name(), err)
		}
	}
	return ctx.Err()
}

// Remove removes hosts, with their links, processes and listeners. Hosts that are already
// gone are not an error.
func (l *Lab) Remove(names ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, name := range names {
		h := l.find(name)
		if h == nil {
			continue
		}
		h.killAll()
		for _, k := range slices.Clone(l.links) {
			if k.spec.A.Host == name || k.spec.B.Host == name {
				errs = append(errs, l.removeLink(k))
			}
		}
		errs = append(errs, l.removeHost(h))
	}
	return errors.Join(errs...)
}

func (l *Lab) removeHost(h *Host) error {
	l.hosts = slices.DeleteFunc(l.hosts, func(o *Host) bool { return o == h })
	return h.close()
}

// Close kills all processes and removes everything. The kernel removes links with their
// namespaces a moment later.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, h := range l.hosts {
		h.killAll()
	}
	for _, h := range l.hosts {
		errs = append(errs, h.close())
	}
	for _, s := range l.switches {
		errs = append(errs, s.close())
	}
	if l.panel != nil {
		errs = append(errs, l.panel.close())
	}
	l.hosts, l.switches, l.links, l.panel = nil, nil, nil, nil
	return errors.Join(errs...)
}

// Host returns the host with that name. It panics if there is no such host, because names
// come from the topology.
func (l *Lab) Host(name string) *Host {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.find(name)
	if h == nil {
		panic(fmt.Sprintf("lab: there is no host %q", name))
	}
	return h
}

func (l *Lab) find(name string) *Host {
	for _, h := range l.hosts {
		if h.Name() == name {
			return h
		}
	}
	return nil
}

// Topology returns the current topology.
func (l *Lab) Topology() Topology {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := Topology{Title: l.title}
	for _, h := range l.hosts {
		t.Hosts = append(t.Hosts, h.spec)
	}
	for _, s := range l.switches {
		t.Switches = append(t.Switches, s.spec)
	}
	for _, k := range l.links {
		t.Links = append(t.Links, k.spec)
	}
	return t
}

// names are the names in use; true for a switch.
func (l *Lab) names() map[string]bool {
	names := map[string]bool{}
	for _, h := range l.hosts {
		names[h.Name()] = false
	}
	for _, s := range l.switches {
		names[s.spec.Name] = true
	}
	return names
}

func (l *Lab) findSwitch(name string) *ethernetSwitch {
	for _, s := range l.switches {
		if s.spec.Name == name {
			return s
		}
	}
	return nil
}
