package xdpbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/bench"
)

// programs measures the load balancer's program and the floors in every case.
func (m *meter) programs(ctx context.Context) error {
	for _, s := range subjects() {
		for i, l := range s.loads {
			name := s.name + ", " + l.name
			if m.o.Against != nil && s.floor != "" || !m.wanted(name) {
				continue
			}
			measure := m.program
			if m.o.Against != nil {
				measure = m.compareProgram
			}
			if err := measure(ctx, s, i, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// scene is everything that is open for one case.
type scene struct {
	*meter
	subject
	load
	name  string
	open  []io.Closer
	under *xdp.DataPlane
	all   []contender
	last  *Rig
	turn  uint64 // number of packets sent when comparing two builds
}

// program measures a subject under its i-th load.
func (m *meter) program(ctx context.Context, s subject, i int, name string) (err error) {
	sc := &scene{meter: m, subject: s, load: s.loads[i], name: name}
	defer func() { err = errors.Join(err, CloseAll(sc.open)) }()
	if err := errors.Join(sc.floors(), sc.contend()); err != nil {
		return err
	}
	if err := m.Balancer.Do(sc.warm); err != nil {
		return err
	}
	before, err := sc.flowsBegun()
	if err != nil {
		return err
	}
	sc.last.state.Verdicts = [8]uint64{}
	took, err := m.rounds(ctx, m.Balancer, sc.all)
	if err != nil {
		return err
	}
	if err := sc.judge(before); err != nil {
		return err
	}
	row := m.row(name, sc.all, took)
	if i < len(s.goals) {
		row = row.AtMost(s.goals[i])
	}
	m.report.Rows = append(m.report.Rows, row)
	return nil
}

// packets is the number of packets in a row: enough to touch a good part of the memory
// they need, but few enough that floor and case see the same machine state.
func (s *scene) packets() int {
	if s.flows == 0 || s.flows > 1<<12 {
		return 1 << 18
	}
	return 1 << 16
}

// floors opens the floors of the case.
func (s *scene) floors() error {
	names := []string{floorBare}
	if s.also != "" {
		names = append(names, s.also)
	}
	if s.floor != "" {
		names = append(names, s.floor)
	}
	for _, name := range names {
		r, err := FloorRig(name, s.vips, s.ringSlots(s.vips), s.NIC)
		if err != nil {
			return err
		}
		l := s.load
		if name == floorBare {
			l.vips = 1
		}
		plain := subject{method: service.Tunnel}
		if err := s.enter(name, r, plain, l); err != nil {
			return err
		}
	}
	return nil
}

// enter adds a contender that sends a subject's packets.
func (s *scene) enter(name string, r *Rig, of subject, l load) (err error) {
	s.open, s.last = append(s.open, r), r
	s.all = append(s.all, contender{name, func() (float64, error) { return r.Run(s.packets()) }})
	r.state, err = of.state(l)
	return err
}

// contend opens the load balancer, unless a floor is measured, and programs its
// frontends.
func (s *scene) contend() error {
	if s.floor != "" {
		return nil
	}
	c := xdp.Config{MaxFrontends: 16384, MaxBackends: 16384, MaxFlows: s.flowTable}
	c.MaxMembers = max(1<<16, s.vips*max(8, s.servers)*2)
	if s.keyed {
		c.Auth.Keys = benchKeys
	}
	d, err := s.Open(c)
	if err != nil {
		return err
	}
	s.open, s.under = append(s.open, d), d.DataPlane
	if s.method == service.DR {
		if err := s.Balancer.Do(s.link); err != nil {
			return err
		}
	}
	began := time.Now()
	for i := range s.vips {
		if err := d.Upsert(s.frontend(i, s.vips)); err != nil {
			return err
		}
	}
	if s.servers > 0 && s.o.Against == nil {
		if err := s.filled(time.Since(began)); err != nil {
			return err
		}
	}
	r, err := BalancerRig(d.DataPlane, s.NIC)
	if err != nil {
		return err
	}
	return s.enter("balancer", r, s.subject, s.load)
}

// link adds the backends as neighbors, for dr.
func (s *scene) link() error {
	for i := range 4 {
		addr := s.server(1 + i).Addr()
		to := net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
		if err := errors.Join(s.neighbor(addr.String()), netlink.RouteReplace(&netlink.Route{LinkIndex: s.NIC, Dst: &to, Scope: netlink.SCOPE_LINK})); err != nil {
			return err
		}
	}
	return nil
}

// filled reports how long programming the frontends took, and the memory of their Maglev
// tables.
func (s *scene) filled(took time.Duration) error {
	_, pins, err := s.under.Programs()
	if err != nil {
		return err
	}
	segments, err := RingSegments(pins)
	if err != nil {
		return err
	}
	slots := 0
	for _, m := range segments {
		slots += int(m.MaxEntries())
	}
	s.report.Rows = append(s.report.Rows,
		bench.Plain(s.name+": Maglev tables filled in", "s", took.Seconds()).AtMost(10),
		bench.Plain(s.name+": Maglev table memory", "MB", float64(slots*8)/1e6).AtMost(600))
	return CloseAll(segments)
}

// RingSegments opens the maps that contain the Maglev tables.
func RingSegments(pins string) ([]*ebpf.Map, error) { return Segments(pins, "rings") }

// Segments opens the maps in a map of maps.
func Segments(pins, name string) (all []*ebpf.Map, err error) {
	outer, err := ebpf.LoadPinnedMap(filepath.Join(pins, name), nil)
	if err != nil {
		return nil, err
	}
	defer outer.Close()
	var i, id uint32
	for it := outer.Iterate(); it.Next(&i, &id); {
		inner, err := ebpf.NewMapFromID(ebpf.MapID(id))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: segment %d: %w", name, i, err), CloseAll(all))
		}
		all = append(all, inner)
	}
	return all, nil
}

// warm sends every flow once to fill maps and caches. Before that, it ages the flow table
// if the subject requires that.
func (s *scene) warm() error {
	if s.aged {
		flows := s.last.state.Flows
		s.last.state.Flows = ^uint64(0)
		if _, err := s.last.Run(4 * tableSize); err != nil {
			return err
		}
		s.last.state.Flows = flows
	}
	for _, c := range s.all {
		for sent := 0; sent < int(max(1<<19, s.flows)); sent += s.packets() {
			if _, err := c.run(); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return s.sendBySubject()
}

// sendBySubject sets how the load balancer's rig sends, depending on the subject.
func (s *scene) sendBySubject() error {
	last := len(s.all) - 1
	switch {
	case s.both:
		run, err := s.thereAndBack(s.last)
		s.all[last].run = run
		return err
	case s.flood:
		run, err := s.inFlood(s.last)
		s.all[last] = contender{"the same without", s.bursts(s.last, func() error { return nil })}
		s.all = append(s.all, contender{"balancer", run})
		return err
	}
	return nil
}

// floodBurst is the number of packets of the flood, and then of the measured flows, in a
// row. It is large enough that the kernel's work before a run, about 900 us, does not
// matter.
const floodBurst = 1 << 15

// bursts sends the flows in bursts, and calls between before each.
func (s *scene) bursts(r *Rig, between func() error) func() (float64, error) {
	return func() (sum float64, err error) {
		n := s.packets() / floodBurst
		for range n {
			if err := between(); err != nil {
				return 0, err
			}
			ns, err := r.Run(floodBurst)
			if err != nil {
				return 0, err
			}
			sum += ns
		}
		return sum / float64(n), nil
	}
}

// inFlood sends the flows in bursts, each after a burst of a flood.
func (s *scene) inFlood(r *Rig) (run func() (float64, error), err error) {
	flood := *r
	if flood.state, err = s.subject.state(fresh); err != nil {
		return nil, err
	}
	return s.bursts(r, func() error {
		_, err := flood.Run(floodBurst)
		return err
	}), nil
}

// thereAndBack sends the flows, and then the replies of their backends.
func (s *scene) thereAndBack(forth *Rig) (run func() (float64, error), err error) {
	back, err := s.answers(forth)
	if err != nil {
		return nil, err
	}
	return func() (float64, error) {
		there, err := forth.Run(s.packets())
		if err != nil {
			return 0, err
		}
		again, err := back.Run(s.packets())
		if wrong := back.state.Verdicts[pass] + back.state.Verdicts[drop]; wrong > 0 {
			return 0, fmt.Errorf("%d answers did not go back: %v", wrong, back.state.Verdicts)
		}
		return there + again, err
	}, nil
}

// answers returns a rig that sends the replies of the flows' backends.
func (s *scene) answers(forth *Rig) (*Rig, error) {
	back := *forth
	source := netip.AddrPortFrom(netip.MustParseAddr(ownAddr), 1)
	back.state = harnessBench{Flows: s.flows - 1, Back: 1}
	if err := setFrame(&back.state, pktgen.Packet{From: s.server(1), To: source, Protocol: "tcp", Payload: 26}); err != nil {
		return nil, err
	}
	for f, err := range s.under.EachFlow(dataplane.FlowQuery{}) {
		if err != nil {
			return nil, err
		}
		back.state.Ports[(f.Client.Port()-1024)%1024] = netorder.Port(f.Source.Port())
	}
	return &back, nil
}

// flowsBegun returns the number of new flows of all frontends.
func (s *scene) flowsBegun() (sum uint64, err error) {
	if s.under == nil {
		return 0, nil
	}
	all, err := s.under.Counters()
	for _, c := range all {
		sum += c.Total.Flows
	}
	return sum, err
}

// judge checks that the packets had the expected verdict, and notes how many of them
// started a flow.
func (s *scene) judge(before uint64) error {
	after, err := s.flowsBegun()
	if err != nil {
		return err
	}
	total := uint64(0)
	for _, n := range s.last.state.Verdicts {
		total += n
	}
	if wrong := total - s.last.state.Verdicts[s.want]; wrong > total/100 {
		return fmt.Errorf("%d of %d packets were not judged %d: %v, %v", wrong, total, s.want, s.last.state.Verdicts, s.drops())
	}
	s.report.Note("%s: %d packets with the verdict %d, %d with another; %.2f %% began a flow", s.name, s.last.state.Verdicts[s.want], s.want,
		total-s.last.state.Verdicts[s.want], 100*float64(after-before)/float64(total))
	return nil
}

func (s *scene) drops() map[string]uint64 {
	if s.under == nil {
		return nil
	}
	return s.under.Describe().Drops
}
