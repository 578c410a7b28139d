package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Layer is a top-level folder of code, and the lower folders that it may import outside
// tests.
type Layer struct {
	Folder string
	May    []string
}

// layers are the top-level folders of code from the bottom up, as drawn in
// ARCHITECTURE.md. Only lab and cmd may import lab, and no installed program does.
var layers = []Layer{
	{"internal", nil},
	{"core", []string{"internal"}},
	{"api", nil},
	{"advertise", []string{"internal", "core"}},
	{"router", []string{"internal", "core", "advertise"}},
	{"dataplane", []string{"internal", "core"}},
	{"source", []string{"internal", "core", "api", "advertise"}},
	{"vdn", []string{"internal", "core", "api", "advertise"}},
	{"controller", []string{"internal", "core", "api", "advertise", "source"}},
	{"reconciler", []string{"internal", "core", "advertise", "dataplane", "source"}},
	{"agent", []string{"internal", "core", "advertise", "router", "dataplane", "source", "vdn", "reconciler"}},
	{"lab", []string{"internal", "core", "advertise", "router", "dataplane", "source", "vdn", "controller", "reconciler", "agent"}},
	{"cmd", []string{"internal", "core", "advertise", "router", "dataplane", "source", "vdn", "controller", "reconciler", "agent", "lab"}},
	{"scripts", []string{"internal"}},
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
