package ipvsbench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/uml"
)

// guestLimit is the time limit for the guest: with the table's sizes it takes half an
// hour on a busy machine.
const guestLimit = time.Hour

// Run measures on this kernel if it has IPVS, otherwise in a guest that has it.
func Run(ctx context.Context, o Options) (*bench.Report, error) {
	if uml.HasIPVS() {
		return Measure(ctx, o)
	}
	return InGuest(ctx, "bench", "ipvs", "--output", "json", "--out", sandbox.WorkDir,
		"--sizes", Joined(o.Sizes), "--runs", fmt.Sprint(o.Runs), "--iptables", o.IPTables.String())
}

// Joined formats numbers for a flag.
func Joined(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
}

// InGuest measures in a UML guest that has IPVS. It runs this program there with args,
// which must make it write the report to its standard output as JSON.
func InGuest(ctx context.Context, args ...string) (*bench.Report, error) {
	var out bytes.Buffer
	status, err := uml.Run(ctx, uml.Options{Memory: 4096, Limit: guestLimit, OneCPU: true, Stdout: &out}, append([]string{"/proc/1/exe"}, args...)...)
	if err != nil {
		return nil, err
	}
	r := &bench.Report{}
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		return nil, fmt.Errorf("ipvs: the guest ended with %d and no report: %w", status, err)
	}
	r.Machine = bench.Machine()
	r.Note("Measured in a guest: user-mode Linux, in which a system call takes some 20 µs.")
	return r, nil
}
