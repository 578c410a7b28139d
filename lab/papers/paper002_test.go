package papers

import (
	"fmt"
	"testing"
)

// judged returns the verdicts of rows over two repetitions with these samples.
func judged(t *testing.T, samples map[string][]float64, rows ...string) map[string]*Result {
	t.Helper()
	faked(t, func(_ Options, _ string, m *Measured) error {
		m.Samples = samples
		return nil
	})
	report, err := Run(t.Context(), options(t, rows...))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Result{}
	for _, id := range rows {
		all[id] = find(t, report, id)
	}
	return all
}

// TestBatchRows judges half of the requests, and a tenth of the time.
func TestBatchRows(t *testing.T) {
	samples := map[string][]float64{}
	for _, kind := range []string{"endpoints", "endpointslices"} {
		for _, limit := range []string{"", ", 50 requests/s at most"} {
			for i, n := range []int{100, 150, 200} {
				name := fmt.Sprintf("%s, %d Services%s, period ", kind, n, limit)
				samples[name+"0s: requests"], samples[name+"500ms: requests"] = []float64{1000}, []float64{500 + float64(i)}
				samples[name+"0s: all known"], samples[name+"500ms: all known"] = []float64{10}, []float64{1 + float64(i)/10}
			}
		}
	}
	rows := judged(t, samples, "002/batch-requests", "002/batch-latency")
	for id, want := range map[string]Verdict{"002/batch-requests": DoesNot, "002/batch-latency": Holds} {
		if row := rows[id]; row.Verdict != want || len(row.Values) != 6 || len(row.Curves) != 10 || row.N != 6 {
			t.Errorf("%s: %+v", id, row)
		}
	}
}

// TestBandwidthRows judges the slides' own values, which confirm their claim, and constant
// ones, which do not.
func TestBandwidthRows(t *testing.T) {
	samples := map[string][]float64{}
	for _, n := range []int{1, 25_000, 50_000} {
		for _, position := range []string{"first", "last"} {
			for _, way := range []string{"iptables", "ipvs"} {
				name := fmt.Sprintf("%s, %d Services: ", way, n)
				samples[name+"single packets to the "+position] = []float64{1, 1}
				theirs := map[string]float64{"iptables 1": 66.6, "iptables 25000": 0.01, "iptables 50000": 0.01, "ipvs 1": 65.3, "ipvs 25000": 30, "ipvs 50000": 24}[fmt.Sprint(way, " ", n)]
				if way == "iptables" && position == "last" {
					theirs /= float64(min(n, 2))
				}
				samples[name+"one connection to the "+position] = []float64{theirs, theirs}
			}
		}
	}
	rows := judged(t, samples, "002/bandwidth", "002/bandwidth-packets")
	if one, packets := rows["002/bandwidth"], rows["002/bandwidth-packets"]; one.Verdict != Holds || packets.Verdict != DoesNot || len(one.Values) != 22 {
		t.Errorf("%+v\n%+v", one, packets)
	}
}

// TestControlRows judges eleven small objects instead of one, and one client instead of 50.
func TestControlRows(t *testing.T) {
	rows := judged(t, map[string][]float64{
		"endpoints, 1000 pods: objects": {1}, "endpointslices, 1000 pods: objects": {11},
		"endpoints, 1000 pods: bytes of one change": {90_000}, "endpointslices, 1000 pods: bytes of one change": {10_000},
		"endpoints, 1000 pods: requests until all are ready": {100}, "endpointslices, 1000 pods: requests until all are ready": {99},
		"one load balancer: connections": {1}, "50 nodes: connections": {50}, "one load balancer: watches": {3}, "50 nodes: watches": {150},
		"one load balancer: requests until all is read": {6}, "50 nodes: requests until all is read": {300},
		"request by a central load balancer": {60}, "request by the node's proxy": {50},
	}, "002/partition", "002/central")
	if rows["002/partition"].Verdict != DoesNot || rows["002/central"].Verdict != Holds {
		t.Errorf("%+v\n%+v", rows["002/partition"], rows["002/central"])
	}
}
