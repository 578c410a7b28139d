package cni_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/benchtest"
	"github.com/fairlead/fairlead/lab/bench/cni"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestWeb measures the smallest configuration once: every load balancer answers requests
// in every network.
func TestWeb(t *testing.T) {
	for _, program := range []string{"nginx", "wrk"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("scripts/deps.sh web installs it: %v", err)
		}
	}
	binary, out := benchtest.Build(t), filepath.Join(benchtest.Ground, "out")
	report := benchtest.Run(t, binary, out, "web", "--case", "balancers", "--rounds", "1", "--seconds", "0.1", "--pods", "1,2", "--connections", "8")
	rows := map[string]bench.Row{}
	for _, row := range report.Rows {
		rows[row.Case] = row
	}
	for _, name := range []string{
		"fairlead, bridge+host-gw, 1 pods", "iptables, bridge+host-gw, 2 pods", "nginx, bridge+host-gw, 2 pods", "fairlead, bridge+vxlan, 2 pods",
		"iptables, tun+udp, 2 pods", "iptables, bridge+host-gw, 2 pods, queues: 2", "iptables, bridge+host-gw, 2 pods, no limit",
	} {
		for _, suffix := range []string{"", ": CPU"} {
			if row := rows["web, "+name+suffix]; row.Measured <= 0 || row.Runs != 1 {
				t.Errorf("row %q: %+v", name+suffix, row)
			}
		}
		if idle := rows["web, "+name+": client idle"]; idle.Unit != "%" {
			t.Errorf("no idle time of %q: %+v", name, idle)
		}
	}
	testkit.NoLeftovers(t)
}

func TestWebOptionsThatMakeNoSense(t *testing.T) {
	benchtest.Nonsense(t, cni.DefaultWebOptions, map[string]func(*cni.WebOptions){
		"--case:":        func(o *cni.WebOptions) { o.Cases = []string{"speed"} },
		"--pods:":        func(o *cni.WebOptions) { o.Pods = []int{2, 1} },
		"--rounds:":      func(o *cni.WebOptions) { o.Rounds = 0 },
		"--seconds:":     func(o *cni.WebOptions) { o.Seconds = 0 },
		"--connections:": func(o *cni.WebOptions) { o.Connections = 0 },
	})
}
