package model

import (
	"fmt"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/cookie"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Host is what a model needs to know about where the programs run.
type Host struct {
	Routes  *packetfuzz.Routes
	Devices []Device
	Sets    int    // of the flow table
	NATBits []byte // the agent's filter of addresses of backends with nat
	Wall    uint64 // ns by which the wall clock is ahead
	MSS     [2]uint16
}

// New returns a model of programs with a configuration, which may change. It reports its
// states to saw.
func New(config *programmed.Config, h Host, saw *packetfuzz.Features) *Model {
	m := &Model{config: config, saw: saw, routes: h.Routes, natBits: h.NATBits, ports: map[uint32]bool{}, counts: map[uint32]traffic{}}
	for _, d := range h.Devices {
		m.ports[d.Index] = true
	}
	m.pool = make([]Flow, 0, 8*packetfuzz.MaxSteps)
	m.sets = make([][8]*Flow, h.Sets)
	m.Drops, m.Fragments = map[reason]uint64{}, map[hashes.Datagram]*Fragment{}
	m.Flows, m.Clients, m.answersOf = map[wire.Tuple]*Flow{}, map[ClientKey]*Flow{}, map[wire.Tuple]*Flow{}
	m.Connections = map[uint32]Halves{}
	m.Each, m.All = map[ClientKey]*ClientBuckets{}, map[uint32]*AllBuckets{}
	m.Sources, m.Events = map[wire.Addr]*Source{}, map[uint32]*[SynEvents]uint64{}
	m.wall, m.mss = h.Wall, h.MSS
	return m
}

// Begin empties the model for a case that starts at a time and with a random number.
func (m *Model) Begin(ns uint64, random uint32) {
	m.Ns, m.Random = ns, random
	m.Translated, m.Orphans, m.Halved, m.failed = false, 0, [64]uint8{}, [64]attempt{}
	m.answers, m.rejected = allowance{}, [64]rejection{}
	m.pool = m.pool[:0]
	clear(m.sets)
	clear(m.Drops)
	clear(m.Fragments)
	clear(m.Flows)
	clear(m.Clients)
	clear(m.answersOf)
	clear(m.Connections)
	clear(m.Each)
	clear(m.All)
	clear(m.Sources)
	clear(m.Events)
}

// Rotate makes other keys of cookies valid.
func (m *Model) Rotate(keys cookie.Keys) { m.keys = keys }

// Routed forgets what the kernel's routes were.
func (m *Model) Routed() { m.routes.Forget() }

// Known are the flows and clients of this case, including those that are gone.
func (m *Model) Known() []Flow { return m.pool }

// Compare compares the output for the last packet.
func (m *Model) Compare(out []byte) error {
	if !m.changed {
		m.expected.Begin(m.frame)
	}
	if err := m.expected.Compare(out); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}
