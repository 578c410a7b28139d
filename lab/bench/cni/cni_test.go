package cni_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/benchtest"
	"github.com/fairlead/fairlead/lab/bench/cni"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// smallRate is the limit of the link between the sites in this test, in Mbit/s.
const smallRate = 20

// TestCases runs all cases once, with small parameters. Every kind of network must carry
// packets, and not more than the link does. Throughput is not checked further.
func TestCases(t *testing.T) {
	binary, out := benchtest.Build(t), filepath.Join(benchtest.Ground, "out")
	if err := testkit.BuildPackage(filepath.Join(benchtest.Ground, "fairlead-cni"), "github.com/fairlead/fairlead/cmd/fairlead-cni"); err != nil {
		t.Fatal(err)
	}
	report := benchtest.Run(t, binary, out, "cni",
		"--case", "throughput,wan,latency,balancer,attachments,federation", "--rounds", "1", "--seconds", "0.4", "--rates", "20M", "--plain", "20M", "--pods", "1")
	rows := map[string]bench.Row{}
	for _, row := range report.Rows {
		rows[row.Case] = row
		if strings.HasPrefix(row.Case, "20M") && strings.HasSuffix(row.Case, "throughput") && (row.Measured <= 0 || row.Measured > 1.5*smallRate) {
			t.Errorf("%s: %g Mbit/s through %d", row.Case, row.Measured, smallRate)
		}
	}
	var want []string
	for _, kind := range cni.Kinds {
		want = append(want, "20M, pod to pod, "+kind+": throughput", "20M, no offloads, pod to pod, "+kind+": CPU", "latency, pod to pod, "+kind+": p99")
	}
	for _, kind := range []string{cni.Macvlan, cni.HostDevice} {
		want = append(want, "20M, pod to server, "+kind+": less than the host", "20M, pod to server, "+kind+": CPU, over the least of bridge and overlays")
	}
	for _, kind := range []string{cni.Host, cni.VXLAN, cni.Weave, cni.Calico} {
		want = append(want, "wan, 1G, pod to server, "+kind+": throughput")
	}
	for _, kind := range []string{cni.HostGW, cni.VXLAN, cni.TunUDP} {
		want = append(want, "balancer, fairlead, "+kind+", RPS, 1 servers", "balancer, iptables, "+kind+", no RPS, 1 servers")
	}
	for _, name := range want {
		if row, ok := rows[name]; !ok || row.Runs != 1 || row.Mean == nil {
			t.Errorf("row %q: %+v", name, row)
		}
	}
	for _, name := range []string{
		"attachments, 500, controller killed 3 times: addresses given twice", "attachments, 500, controller killed 3 times: leases lost",
		"federation, connections before both networks name each other",
	} {
		if row := rows[name]; row.Met == nil || !*row.Met {
			t.Errorf("row %q: %+v", name, row)
		}
	}
	page, err := os.ReadFile(filepath.Join(out, "cni.html"))
	for _, part := range []string{"(Fig. 5)", "about 940", "(Fig. 6)", "9880", "CPU time", "tun+udp", "(Fig. 11)", "RPS", "(Fig. 12)", "iptables"} {
		if err != nil || !bytes.Contains(page, []byte(part)) {
			t.Errorf("the page lacks %q: %v", part, err)
		}
	}
	testkit.NoLeftovers(t)
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	benchtest.Nonsense(t, cni.DefaultOptions, map[string]func(*cni.Options){
		"--case:":    func(o *cni.Options) { o.Cases = []string{"speed"} },
		"--rates:":   func(o *cni.Options) { o.Rates = []string{"1G", "10G", "none", "9600"} },
		"--plain:":   func(o *cni.Options) { o.Plain = []string{"2G"} },
		"--rounds:":  func(o *cni.Options) { o.Rounds = 0 },
		"--seconds:": func(o *cni.Options) { o.Seconds = 0.01 },
		"--pods:":    func(o *cni.Options) { o.Pods = []int{0} },
	})
}
