package router

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit"
)

// TestGuideRemovesRoutes runs the command with which docs/router.md removes the routes of
// a router: none of its routes and next hops may remain, and others' routes must stay.
func TestGuideRemovesRoutes(t *testing.T) {
	page, err := os.ReadFile("../docs/router.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^ip (nexthop|route) flush .*$`).FindString(string(page))
	if command == "" {
		t.Fatal("the page shows no command")
	}
	l := nodes(t)
	table := open(t, l)
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.0.0.105 10.0.0.106", "10.1.2.1/32 10.0.0.107", "fd00:1:1::/64 fd00::105 fd00::106")
	words := strings.Fields(command)
	testkit.Do(t, l.Host("router").Namespace(), func() error {
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
		out, err := exec.Command("ip", "route", "show", "table", "all", "proto", "kernel").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "10.0.0.0/16") {
			t.Errorf("other routes are gone: %v: %s", err, out)
		}
		return nil
	})
	if got := shown(t, table); got != "" {
		t.Errorf("routes left:\n%s", got)
	}
	if left, err := table.listNexthops(); err != nil || len(left) != 0 {
		t.Errorf("next hops left: %v, %v", left, err)
	}
}
