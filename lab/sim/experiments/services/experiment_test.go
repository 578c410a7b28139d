package services

import (
	"testing"

	"github.com/fairlead/fairlead/lab/sim/experiments/beyondtest"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

func TestSameOnAnyMachine(t *testing.T) { beyondtest.Same(t, Experiment(), 0x5ec200c9a63ee96d) }

func TestVerdicts(t *testing.T) {
	const yes, no, unseen = verdict.Holds, verdict.DoesNot, verdict.Unknown
	beyondtest.Verdicts(t, Experiment(), yes, yes, yes, yes, yes, no, unseen, yes, yes, yes)
}
