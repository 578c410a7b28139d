package dsr

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/tc"
)

type point = tc.Point

// hooked are the programs attached to devices.
func (p serverPrograms) hooked() tc.Programs {
	return tc.Programs{
		serverProgToServer:   {Program: p.ToServer, Handle: 1},
		serverProgFromServer: {Program: p.FromServer, Handle: 2, Ingress: true},
		serverProgToHost:     {Program: p.ToHost, Handle: 3, Ingress: true},
		serverProgFromHost:   {Program: p.FromHost, Handle: 4},
		serverProgFromNode:   {Program: p.FromNode, Handle: 5},
	}
}

// describe returns lines like "veth1: tcx: servers behind it".
func describe(hook tc.Hook) []string {
	serves := map[string]string{
		serverProgToServer: "servers behind it", serverProgToHost: "packets that come in",
	}
	var lines []string
	for _, p := range hook.Points() {
		if what, ok := serves[p.Program]; ok {
			lines = append(lines, fmt.Sprintf("%s: %s: %s", tc.DeviceName(p.Device), hook.Kind(), what))
		}
	}
	slices.Sort(lines)
	return lines
}
