package testkit

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/uml"
)

// MainIPVS is Main for a package whose tests need a kernel with IPVS. If this kernel
// lacks it, they run in a guest that has it. Flags, output and exit code are those of a
// plain `go test`. Files that tests write are lost with the guest, except with -update
// those in the package's folder. Without a guest the tests fail.
func MainIPVS(m *testing.M) {
	if uml.HasIPVS() {
		Main(m)
	}
	os.Exit(runInGuest())
}

// runInGuest runs this test binary in a guest. The sandbox around it is for the guest's
// own files and processes.
func runInGuest() int {
	status, err := 1, enter(sandbox.Options{Name: "guest"})
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
		defer stop()
		argv := append([]string{"/proc/1/exe"}, os.Args[1:]...) // this program, as the guest's first process
		o := uml.Options{Limit: guestLimit(os.Args)}
		if slices.Contains(os.Args, "-update") {
			o.Writable = []string{"../.."}
		}
		status, err = uml.Run(ctx, o, argv...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// guestLimit is the -test.timeout of the tests, plus time to boot.
func guestLimit(args []string) time.Duration {
	const boot, unlimited = time.Minute, 24 * time.Hour
	for _, a := range args {
		if text, ok := strings.CutPrefix(a, "-test.timeout="); ok {
			if given, err := time.ParseDuration(text); err == nil && given > 0 {
				return given + boot
			}
		}
	}
	return unlimited
}
