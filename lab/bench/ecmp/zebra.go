package ecmp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/checkout"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/interop"
)

// zebraHops is the number of load balancers behind the router of case zebra.
const zebraHops = 3

// zebra counts the next hops in the kernel of a router with GoBGP and FRR's zebra, which
// learns all paths from our reflector: with Debian's gobgpd, and with GoBGP 4 if
// bin/tools has it.
func zebra(ctx context.Context, o Options, r *bench.Report) error {
	programs := [][2]string{{"Debian's gobgpd", ""}}
	if root, err := checkout.Root(); err == nil {
		if path := filepath.Join(root, "bin/tools/gobgpd"); exists(path) {
			programs = append(programs, [2]string{"GoBGP 4", path})
		}
	}
	for _, p := range programs {
		name, program := p[0], p[1]
		var hops []float64
		for range o.Rounds {
			n, end, err := o.withZebra(ctx, program)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			o.logf("zebra: %s: %d next hops%s", name, n, end)
			if hops = append(hops, float64(n)); end != "" && len(hops) == 1 {
				r.Note("zebra: %s%s", name, end)
			}
		}
		r.Rows = append(r.Rows, bench.Plain("zebra: "+name+": next hops in the router's kernel", "", hops...))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// gobgpText is the configuration of the router.
const gobgpText = `[global.config]
  as = 65021
  router-id = "%s"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "%s"
    peer-as = 65021
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
    [neighbors.afi-safis.add-paths.config]
      receive = true
`

// withZebra returns the number of next hops, and how the daemon ended if it did.
func (o Options) withZebra(ctx context.Context, program string) (hops int, end string, err error) {
	n, host, err := newSpeakersNetwork(ctx, o, zebraHops)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if _, err := n.startReflector(); err != nil {
		return 0, "", err
	}
	d, err := interop.Start(n.lab.Host("router").Namespace(), interop.Zebra, interop.Config{Text: fmt.Sprintf(gobgpText, routerAddr, reflectorAddr), Program: program})
	if err != nil {
		if end = panicIn(err.Error()); end != "" {
			err = nil // before it accepted commands
		}
		return 0, end, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	all, err := n.speak(host, 0, zebraHops)
	if err == nil {
		err = all.obey(order{All: 1})
	}
	if err != nil {
		return 0, "", err
	}
	for began := time.Now(); hops != zebraHops && end == "" && time.Since(began) < 20*time.Second; hops = n.hops(0) {
		end = panicIn(d.Log())
		if err := bench.Pause(ctx, 100*time.Millisecond); err != nil {
			return 0, "", err
		}
	}
	return hops, end, nil
}

// panicIn returns how a daemon ended that has written a log, or "".
func panicIn(log string) string {
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "panic:") {
			return " ended: " + strings.TrimSpace(line)
		}
	}
	return ""
}
