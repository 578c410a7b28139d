// Command fairlead-ipam is a CNI plugin run by container runtimes: see docs/cni.md. It
// only contains wiring.
package main

import (
	"runtime"

	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/vdn/cni"
)

// The main goroutine stays on the main thread, which never leaves the node's
// network namespace.
func init() { runtime.LockOSThread() }

func main() {
	cni.Main(cni.IPAMFuncs(), "CNI plugin fairlead-ipam "+version.String())
}
