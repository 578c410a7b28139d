package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRead extracts the relevant entries of a report: tests that have run, and failures
// around them.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	text := `[{"SpecReports":[
		{"LeafNodeType":"SynchronizedBeforeSuite","State":"passed","RunTime":5},
		{"LeafNodeType":"It","LeafNodeText":"serves","ContainerHierarchyTexts":["Services"],"State":"passed","RunTime":1500000000},
		{"LeafNodeType":"It","LeafNodeText":"other","State":"skipped"},
		{"LeafNodeType":"It","LeafNodeText":"later","State":"pending"},
		{"LeafNodeType":"It","LeafNodeText":"breaks","State":"timedout","Failure":{"Message":"not within\n2m"}},
		{"LeafNodeType":"SynchronizedAfterSuite","State":"failed"}]}]`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range got {
		names = append(names, s.LeafNodeType+" "+s.LeafNodeText)
	}
	if diff := cmp.Diff([]string{"It serves", "It breaks", "SynchronizedAfterSuite "}, names); diff != "" {
		t.Error(diff)
	}
	if got[0].RunTime != 1500*time.Millisecond || report(got) != 2 {
		t.Errorf("%+v: want two that failed", got)
	}
}

func TestChoose(t *testing.T) {
	for name, good := range map[string]bool{"nftables": true, "iptables": true, "none": true, "fairlead": true, "ipvs": false} {
		proxy, err := choose(name, "main_test.go")
		if (err == nil) != good || (proxy == nil) != (name == "none" || !good) {
			t.Errorf("%s: %t, %v", name, proxy != nil, err)
		}
	}
	if _, err := choose("fairlead", "no/such/program"); err == nil {
		t.Error("a missing program is accepted")
	}
}
