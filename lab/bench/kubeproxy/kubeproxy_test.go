package kubeproxy_test

import (
	"testing"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/benchtest"
	"github.com/fairlead/fairlead/lab/bench/kubeproxy"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { kube.Main(m, "kube-proxy") }

// TestSmall runs the whole experiment with small parameters. It does not check durations,
// but it checks what is lost or written.
func TestSmall(t *testing.T) {
	report := benchtest.Run(t, benchtest.Build(t), benchtest.Ground, "kube",
		"--services", "100", "--peer-services", "50", "--big-services", "20", "--starts", "1", "--changes", "5",
		"--connects", "100", "--duration", "2s", "--rolling-services", "20", "--rolling-pods", "3")
	testkit.NoLeftovers(t)
	rows := map[string]bench.Row{}
	for _, r := range report.Rows {
		if _, twice := rows[r.Case]; twice {
			t.Errorf("%q twice", r.Case)
		}
		rows[r.Case] = r
	}
	for name, peer := range map[string]bool{
		"process start to all in the kernel": true, "the floor of that": false, "one Service more, p99": true, "one endpoint changed, p50": true,
		"changes all the time: processor": true, "changes all the time: delay, p99": true, "memory at most (RSS)": true,
		"memory of the kernel's maps": false, "connect to the last Service": true, "killed and started again: in sync after": true,
		"killed and started again: entries rewritten": false, "killed and started again: requests with a packet lost": true,
	} {
		if r, ok := rows["100 Services: "+name]; !ok || peer != (r.PeerMeasured != nil) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, name := range []string{
		"20 Services: process start to all 1000 endpoints in the kernel", "50 Services: one endpoint changed, p50",
		"rolling update of 3 pods in 20 Services: entries written",
	} {
		if r := rows[name]; r.Measured <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, name := range []string{"process start to all in the kernel", "one Service more, p50", "changes all the time: processor", "connect to the last Service"} {
		if r := rows["50 Services: "+name]; r.OverPeer == nil || r.OverPeer.Median <= 0 {
			t.Errorf("%s, compared with kube-proxy: %+v", name, r)
		}
	}
	for _, name := range []string{"entries rewritten", "requests with a packet lost"} {
		if r := rows["100 Services: killed and started again: "+name]; r.Measured != 0 || r.Met == nil || !*r.Met {
			t.Errorf("%+v", r)
		}
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	benchtest.Nonsense(t, kubeproxy.DefaultOptions, map[string]func(*kubeproxy.Options){
		"--only":             func(o *kubeproxy.Options) { o.Only = []string{"starts"} },
		"--services":         func(o *kubeproxy.Options) { o.Services = 1 },
		"--endpoints":        func(o *kubeproxy.Options) { o.Endpoints = 101 },
		"--peer-services":    func(o *kubeproxy.Options) { o.PeerServices = o.Services + 1 },
		"--big-services":     func(o *kubeproxy.Options) { o.BigEndpoints = 1 << 20 },
		"--starts":           func(o *kubeproxy.Options) { o.Starts = 0 },
		"--duration":         func(o *kubeproxy.Options) { o.Duration = 0 },
		"--rolling-services": func(o *kubeproxy.Options) { o.RollingServices = o.Services + 1 },
	})
}
