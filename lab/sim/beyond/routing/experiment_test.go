package routing

import (
	"testing"

	"github.com/fairlead/fairlead/lab/sim/beyond/beyondtest"
	"github.com/fairlead/fairlead/lab/sim/claim"
)

func TestSameOnAnyMachine(t *testing.T) { beyondtest.Same(t, Experiment(), 0xa042cdfba962f32a) }

func TestVerdicts(t *testing.T) {
	const yes, no, unseen = claim.Holds, claim.DoesNot, claim.Unknown
	beyondtest.Verdicts(t, Experiment(), yes, yes, yes, yes, yes, no, no, no, no, unseen)
}
