package cni

import (
	"errors"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/fairlead/fairlead/internal/limit"
)

// maxConfig is the longest configuration that is read, in bytes.
const maxConfig = 1 << 20

// Main answers one call of a runtime and ends the process.
func Main(funcs skel.CNIFuncs, about string) {
	if command := os.Getenv("CNI_COMMAND"); command != "" && command != "VERSION" { // those two read nothing
		if err := boundStdin(); err != nil {
			_ = err.Print() // whom could it be told?
			os.Exit(1)
		}
	}
	skel.PluginMainFuncs(funcs, Versions, about)
}

// boundStdin puts what is on standard input in its place, and refuses what is too
// long: skel would read it to its end.
func boundStdin() *types.Error {
	text, err := limit.ReadAll(os.Stdin, "configuration", maxConfig)
	var long *limit.TooLong
	if errors.As(err, &long) {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	if err != nil {
		return types.NewError(types.ErrIOFailure, "configuration: "+err.Error(), "")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return types.NewError(types.ErrIOFailure, "configuration: "+err.Error(), "")
	}
	go func() {
		_, _ = w.Write(text) // who does not read it to the end needs no more
		_ = w.Close()
	}()
	os.Stdin = r
	return nil
}
