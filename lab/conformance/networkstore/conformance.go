// Package networkstore tests the store with every backend: as a single process, as
// several processes that share a state, and with failing backend requests.
package networkstore

import (
	"testing"

	"github.com/fairlead/fairlead/vdn/store"
)

// Open opens a store on one state. It can be called repeatedly, and a later store sees
// what an earlier one wrote. The store is closed at the end of the test unless it is
// closed already.
type Open func(t *testing.T) *store.Store

// stories are the test cases with one store at a time.
var stories = []struct {
	name string
	tell func(t *testing.T, open Open)
}{
	{"the same request is answered the same", theSameRequestIsAnsweredTheSame},
	{"addresses are asked for, reserved and taken", addressesAskedForReservedAndTaken},
	{"a pod is replaced", aPodThatIsReplaced},
	{"a pod is restarted without a controller", aPodThatIsRestarted},
	{"devices are given to one each", devicesAreGivenToOneEach},
	{"networks with leases change within bounds", networksWithLeasesChangeWithinBounds},
	{"what is not valid is collected", collectReleasesWhatIsNotValid},
	{"many are collected", manyAreCollected},
	{"no address is given twice, and none is lost", noAddressTwiceAndNoneLost},
	{"addresses come again last", addressesComeAgainLast},
	{"offers survive and have numbers", offersSurviveAndHaveNumbers},
	{"a peer offers many networks", manyNetworksAreOffered},
}

// Run runs all stories. fresh returns an Open for a new, empty state.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) { s.tell(t, fresh(t)) })
	}
}
