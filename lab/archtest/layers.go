package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Layer is a top-level folder of code, what it contains, and the lower folders that it may
// import outside tests.
type Layer struct {
	Folder, What string
	May          []string
}

// layers are the top-level folders of code from the bottom up, as drawn in
// docs/layers.svg. Only lab, cmd and scripts may import lab, and no installed
// program does.
var layers = []Layer{
	{"internal", "helpers", nil},
	{"core", "decisions without I/O", []string{"internal"}},
	{"api", "Kubernetes resources", nil},
	{"advertise", "BGP, layer 2, clouds", []string{"internal", "core"}},
	{"router", "upstream router", []string{"internal", "core", "advertise"}},
	{"dataplane", "forwards packets", []string{"internal", "core"}},
	{"source", "Services from files, API", []string{"internal", "core", "api", "advertise"}},
	{"vdn", "virtual networks", []string{"internal", "core", "api", "advertise"}},
	{"controller", "one per cluster", []string{"internal", "core", "api", "advertise", "source"}},
	{"reconciler", "desired state to kernel", []string{"internal", "core", "advertise", "dataplane", "source"}},
	{"agent", "status, metrics, doctor", []string{"internal", "core", "advertise", "router", "dataplane", "source", "vdn", "reconciler"}},
	{"lab", "demo, bench, simulator", []string{"internal", "core", "advertise", "router", "dataplane", "source", "vdn", "controller", "reconciler", "agent"}},
	{"cmd", "flags and wiring", []string{"internal", "core", "advertise", "router", "dataplane", "source", "vdn", "controller", "reconciler", "agent", "lab"}},
	{"scripts", "test runner, checks", []string{"internal", "lab"}},
}

// Misplaced returns every import between top-level folders that the layers do not allow,
// and every folder that is missing in the layers: one line each.
func Misplaced(all []Package, layers []Layer) (faults []string) {
	may := map[string][]string{}
	for _, l := range layers {
		may[l.Folder] = append([]string{l.Folder}, l.May...)
	}
	for _, p := range all {
		from := first(p.Path)
		if !isOurs(p.Path) {
			continue
		}
		if may[from] == nil {
			faults = append(faults, fmt.Sprintf("%s: the layers have no folder %s: add it to them and to ARCHITECTURE.md", p.Path, from))
			continue
		}
		for _, i := range p.Imports {
			if isOurs(i) && !slices.Contains(may[from], first(i)) {
				faults = append(faults, fmt.Sprintf("%s imports %s, but %s may only import %s", p.Path, i, from, strings.Join(may[from], ", ")))
			}
		}
	}
	slices.Sort(faults)
	return slices.Compact(faults)
}

// Upward returns the entries of a table that do not point downward.
func Upward(layers []Layer) (faults []string) {
	var below []string
	for _, l := range layers {
		for _, m := range l.May {
			if !slices.Contains(below, m) {
				faults = append(faults, fmt.Sprintf("%s may import %s, which is not below it", l.Folder, m))
			}
		}
		below = append(below, l.Folder)
	}
	return faults
}
