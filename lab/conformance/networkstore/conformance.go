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
	run  func(t *testing.T, open Open)
}{
	{"repeated requests return the same lease", repeatedRequests},
	{"requested, reserved and assigned addresses", requestedAddresses},
	{"a pod is replaced", replacedPod},
	{"a pod restarts while no controller is reachable", restartedPod},
	{"a device is assigned to one pod only", exclusiveDevices},
	{"changes of networks with leases are validated", changedNetworks},
	{"invalid leases are collected", collectInvalid},
	{"many leases are collected", collectMany},
	{"addresses stay unique and none is lost", uniqueAddresses},
	{"released addresses are reused last", reuseOrder},
	{"offered networks persist and have numeric IDs", offeredNetworks},
	{"a peer offers many networks", manyOfferedNetworks},
}

// Run runs all stories. fresh returns an Open for a new, empty state.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) { s.run(t, fresh(t)) })
	}
}
