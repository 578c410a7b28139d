package services

import (
	"testing"

	"github.com/fairlead/fairlead/lab/sim/beyond/beyondtest"
	"github.com/fairlead/fairlead/lab/sim/claim"
)

func TestSameOnAnyMachine(t *testing.T) { beyondtest.Same(t, Experiment(), 0xa1db8c747ec4870d) }

func TestVerdicts(t *testing.T) {
	const yes, no, unseen = claim.Holds, claim.DoesNot, claim.Unknown
	beyondtest.Verdicts(t, Experiment(), yes, yes, no, yes, yes, no, unseen, yes, yes, yes)
}
