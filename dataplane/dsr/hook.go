package dsr

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/tc"
)

type point = tc.Point

// hooked are the programs attached to devices.
func (p dsrPrograms) hooked() tc.Programs {
	return tc.Programs{
		dsrProgToServer:   {Program: p.ToServer, Handle: 1},
		dsrProgFromServer: {Program: p.FromServer, Handle: 2, Ingress: true},
		dsrProgToHost:     {Program: p.ToHost, Handle: 3, Ingress: true},
		dsrProgFromHost:   {Program: p.FromHost, Handle: 4},
		dsrProgFromNode:   {Program: p.FromNode, Handle: 5},
	}
}

// describe returns lines like "veth1: tcx: servers behind it".
func describe(hook tc.Hook) []string {
	serves := map[string]string{
		dsrProgToServer: "servers behind it", dsrProgToHost: "packets that come in",
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
