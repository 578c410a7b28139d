package main

import (
	"cmp"
	"fmt"
	"io"
)

// A suite is one package whose tests run in each guest.
type suite struct {
	Package string
	// Emulated restricts the tests if the guest is emulated, which is some thirty times
	// slower: a regular expression for whole names, empty for all.
	Emulated string
	// NotRun are tests that cannot run in a guest at all.
	NotRun []exclusion
}

// An exclusion is a set of tests and why a guest cannot run them.
type exclusion struct {
	Tests  string // a regular expression for whole names
	Reason string
}

var suites = []suite{
	// The features come first: if something else fails, they explain why. The
	// packages that take longest come last.
	{Package: "internal/features"},
	{Package: "router"},
	{Package: "advertise/l2"},
	{Package: "dataplane/ipvs"},
	{Package: "vdn/enforce/kernel", Emulated: "TestOnePlan|TestBypass|TestBypassOf.*"},
	{Package: "dataplane/dsr", Emulated: "TestTunnel|TestTunnelOfTheOtherFamily|TestTunnelsOfUnknownBalancers|TestDSRNAT|TestFromServer|TestTraffic|TestSecondChance|TestStackFitsLinux61|TestTagsOfDR"},
	{Package: "dataplane/proxy/packet", Emulated: "TestProtocols|TestFlowsEnd|TestReset|TestSweepSparesTheNextFlow|TestSameToTheTarget|" +
		"TestNoEndpoints|TestTargetsOwnErrors|TestHairpin|TestTakesOverFromKubeProxy"},
	{Package: "dataplane/proxy", Emulated: "TestTCPSocket.*|TestConnectedUDPSocket|TestUnconnectedUDPSocket.*|TestNoTargets|TestNodePorts.*|" +
		"TestNodeOnly|TestAffinity|TestHoldsWhatIsMeant|TestRestartUnderConnections|TestEndsUDPSockets.*|TestKeepsUDPSockets.*"},
	{Package: "dataplane/xdp", Emulated: "TestConformance|TestLatePrograms|TestTunnel|TestDSRNAT|TestFullNAT|TestUntouched|TestNotServed|" +
		"TestVerifierStatistics|TestStackFitsLinux61|TestKeysAreThereFromTheStart|TestBond|TestVLANDevice|TestTrace|TestCaptureBeforeAndAfter"},
}

// list writes one line per suite: the package, the tests to run and the tests to
// skip, as regular expressions.
func list(w io.Writer, emulated bool) {
	for _, s := range suites {
		run := ""
		if emulated {
			run = s.Emulated
		}
		fmt.Fprintf(w, "%s ^(%s)$ %s\n", s.Package, cmp.Or(run, ".*"), s.skip())
	}
}

// skip is the regular expression of the tests that no guest can run, or one that matches
// nothing.
func (s suite) skip() string {
	all := "-"
	for _, e := range s.NotRun {
		all += "|" + e.Tests
	}
	return "^(" + all + ")$"
}
