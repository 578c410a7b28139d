package cni

import (
	"errors"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/fairlead/fairlead/internal/limit"
)

// maxConfig limits the size of a configuration, in bytes.
const maxConfig = 1 << 20

// Main serves one call of a runtime and exits.
func Main(funcs skel.CNIFuncs, about string) {
	if command := os.Getenv("CNI_COMMAND"); command != "" && command != "VERSION" { // these two read no input
		if err := boundStdin(); err != nil {
			_ = err.Print() // there is nowhere to report it
			os.Exit(1)
		}
	}
	skel.PluginMainFuncs(funcs, Versions, about)
}

// boundStdin replaces standard input with its content and rejects content that is too long,
// because skel reads it without a limit.
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
		_, _ = w.Write(text) // a reader that stops early needs no more
		_ = w.Close()
	}()
	os.Stdin = r
	return nil
}
