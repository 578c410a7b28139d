package memory_test

import (
	"errors"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/dataplane/memory"
	"github.com/fairlead/fairlead/schedule"
	"github.com/fairlead/fairlead/service"
)

type fixture struct {
	plane  *memory.DataPlane
	facade dataplane.DataPlane
}

func (f fixture) DataPlane() dataplane.DataPlane { return f.facade }
func (f fixture) Reopen(*testing.T)              {}
func (f fixture) Forward(_ *testing.T, flow schedule.Flow, syn bool, length int) (memory.Decision, error) {
	return f.plane.Forward(flow, syn, length)
}

func TestConformance(t *testing.T) {
	conformance.Run(t, func(*testing.T) conformance.Fixture {
		m := memory.New()
		return fixture{m, m}
	})
}

// Calls that fail and are made again until they succeed leave the same as
// calls that never failed.
func TestFaultyConformance(t *testing.T) {
	conformance.Run(t, func(*testing.T) conformance.Fixture {
		m := memory.New()
		return fixture{m, insistent{memory.NewFaulty(m, 0.3, 1)}}
	})
}

// insistent repeats what failed.
type insistent struct{ *memory.Faulty }

func (i insistent) List() (list []dataplane.Frontend, err error) {
	err = insist(func() (err error) { list, err = i.Faulty.List(); return err })
	return list, err
}

func (i insistent) Upsert(f dataplane.Frontend) error {
	return insist(func() error { return i.Faulty.Upsert(f) })
}

func (i insistent) Delete(k service.Key) error {
	return insist(func() error { return i.Faulty.Delete(k) })
}

func insist(call func() error) error {
	for {
		if err := call(); !errors.Is(err, memory.ErrFault) {
			return err
		}
	}
}
