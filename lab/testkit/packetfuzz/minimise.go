package packetfuzz

import (
	"errors"
	"math/bits"
	"slices"
)

func ones(w uint64) int { return bits.OnesCount64(w) }

// minimiseRuns is how many shorter forms of a case are tried.
const minimiseRuns = 4000

// Minimise reduces a violating case: it removes steps, and then bytes of frames, that are
// not needed for a violation. The world stays the same. If the case by itself violates
// nothing, the failure says so.
func (e *Engine) Minimise(c *Case, why error) *Failure {
	again := e.violates(c)
	if again == nil {
		return &Failure{Case: c, Why: Violated("%v\n(the case alone does not do so again: it depends on what was before)", why)}
	}
	why = again
	runs := 0
	try := func(shorter *Case) bool {
		if runs++; runs > minimiseRuns {
			return false
		}
		if err := e.violates(shorter); err != nil {
			c, why = shorter, err
			return true
		}
		return false
	}
	for n := max(len(c.Steps)/2, 1); n > 0; n /= 2 {
		for i := len(c.Steps) - n; i >= 0; i -= n {
			if i+n <= len(c.Steps) {
				shorter := c.Clone()
				shorter.Steps = slices.Delete(shorter.Steps, i, i+n)
				try(shorter)
			}
		}
	}
	for i := range c.Steps {
		for n := 1024; n > 0 && c.Steps[i].Kind == Packet; n /= 2 {
			for len(c.Steps[i].Frame)-n >= 14 {
				shorter := c.Clone()
				f := &shorter.Steps[i].Frame
				if *f = (*f)[:len(*f)-n]; !try(shorter) {
					break
				}
			}
		}
	}
	return &Failure{Case: c, Why: why}
}

// violates runs a case and returns the violation, if any.
func (e *Engine) violates(c *Case) error {
	e.work.Set(c)
	err := e.execute()
	var v *Violation
	if errors.As(err, &v) {
		return err
	}
	return nil
}
