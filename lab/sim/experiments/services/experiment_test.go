package services

import (
	"testing"

	"github.com/fairlead/fairlead/lab/sim/experiments/beyondtest"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

func TestSameOnAnyMachine(t *testing.T) { beyondtest.Same(t, Experiment(), 0xa1db8c747ec4870d) }

func TestVerdicts(t *testing.T) {
	const yes, no, unseen = verdict.Holds, verdict.DoesNot, verdict.Unknown
	beyondtest.Verdicts(t, Experiment(), yes, yes, no, yes, yes, no, unseen, yes, yes, yes)
}
