package crd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
)

// TestReport writes a report of 10,000 Services, of which some differ, and reads it.
func TestReport(t *testing.T) {
	created := time.Unix(1_800_000_000, 0)
	var all []source.Outcome
	for i := range 10_000 {
		o := source.Outcome{ID: service.ID{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}, Created: created}
		switch {
		case i%100 == 0:
			o.NotProgrammed, o.NotAdvertised = "Rejected", "Rejected"
		case i%10 == 0:
			o.NotAdvertised = "ConditionsNotMet"
		}
		all = append(all, o)
	}
	report := ReportOf("n1", all)
	if report.Services != 10_000 || report.Programmed != 9900 || report.Advertised != 9000 || len(report.Outcomes) != 3 {
		t.Errorf("%d Services, %d programmed, %d advertised, %d outcomes", report.Services, report.Programmed, report.Advertised, len(report.Outcomes))
	}
	for _, want := range all {
		got := OutcomeOf(&report, FingerprintOf(want.ID, want.Created))
		if got == nil || got.NotProgrammed != want.NotProgrammed || got.NotAdvertised != want.NotAdvertised {
			t.Fatalf("%s: %+v", want.ID, got)
		}
	}
	if got := OutcomeOf(&report, FingerprintOf(all[0].ID, created.Add(time.Second))); got != nil {
		t.Errorf("a Service that was created again has an outcome: %+v", got)
	}
	text, err := json.Marshal(report)
	if err != nil || len(text) > 85_000 {
		t.Errorf("10,000 Services take %d bytes: %v", len(text), err)
	}
}

// TestReportWithStrayBytes: what an agent did not write so is not read beyond its end.
func TestReportWithStrayBytes(t *testing.T) {
	o := source.Outcome{ID: service.ID{Namespace: "default", Name: "web"}, Created: time.Unix(0, 0)}
	report := ReportOf("n1", []source.Outcome{o})
	report.Outcomes[0].Services = append(report.Outcomes[0].Services, 1, 2)
	if OutcomeOf(&report, FingerprintOf(o.ID, o.Created)) == nil {
		t.Error("not found")
	}
	report.Outcomes[0].Services = report.Outcomes[0].Services[:5]
	if OutcomeOf(&report, FingerprintOf(o.ID, o.Created)) != nil {
		t.Error("found in a part")
	}
}

// TestDiffer compares random reports.
func TestDiffer(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	reasons := []string{"", "Rejected", "Pending", "absent"}
	services := make([]source.Outcome, 50)
	for i := range services {
		services[i] = source.Outcome{ID: service.ID{Namespace: "default", Name: fmt.Sprint(i)}}
	}
	reporting := func() *v1alpha1.NodeReportStatus {
		var all []source.Outcome
		for _, o := range services {
			if o.NotProgrammed = reasons[random.IntN(4)]; o.NotProgrammed != "absent" {
				o.NotAdvertised = reasons[random.IntN(2)]
				all = append(all, o)
			}
		}
		s := ReportOf("n1", all)
		return &s
	}
	empty := &v1alpha1.NodeReportStatus{}
	for range 100 {
		a, b := reporting(), reporting()
		for _, pair := range [][2]*v1alpha1.NodeReportStatus{{a, b}, {a, nil}, {nil, b}, {a, a}, {nil, nil}} {
			different := map[Fingerprint]bool{}
			Differ(pair[0], pair[1], func(f Fingerprint) { different[f] = true })
			for _, o := range services {
				f := FingerprintOf(o.ID, o.Created)
				x, y := OutcomeOf(cmp.Or(pair[0], empty), f), OutcomeOf(cmp.Or(pair[1], empty), f)
				same := x == nil && y == nil || x != nil && y != nil && x.NotProgrammed == y.NotProgrammed && x.NotAdvertised == y.NotAdvertised
				if same == different[f] {
					t.Fatalf("Service %s: %+v, %+v, differs: %v", o.ID, x, y, different[f])
				}
			}
		}
	}
}

// BenchmarkDecode reads the report of 10,000 Services, as the controller does when one of them
// has changed.
func BenchmarkDecode(b *testing.B) {
	all := make([]source.Outcome, 10_000)
	for i := range all {
		all[i].ID.Name = fmt.Sprint(i)
	}
	text, err := json.Marshal(v1alpha1.NodeReport{Status: ReportOf("n1", all)})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := json.Unmarshal(text, &v1alpha1.NodeReport{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestReportName: reports of dedicated load balancers have names that the API server accepts,
// and no two of them the same.
func TestReportName(t *testing.T) {
	for by, want := range map[string]string{
		"n1":                                   "n1",
		"n1.example/web-1":                     "n1.example--web-1",
		"n1/Web_1":                             "n1-web-1--",
		strings.Repeat("a", 250) + "/" + "pod": "aaaa",
	} {
		if got := ReportName(by); !strings.HasPrefix(got, want) || len(validation.IsDNS1123Subdomain(got)) > 0 {
			t.Errorf("%s: %q, want %q", by, got, want)
		}
	}
	if a, b := ReportName("a/b--c"), ReportName("a--b/c"); a == b {
		t.Errorf("two have the name %s", a)
	}
}
