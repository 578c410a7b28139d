package ipvsbench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/netns"
)

// iptablesRuns is how many single services are added to iptables at each size.
const iptablesRuns = 5

// measureIPTables writes services to iptables-legacy as kube-proxy does: all of them in
// one call, and then one more. It stops after a size that took too long.
func measureIPTables(ctx context.Context, o Options, r *bench.Report) (err error) {
	ns, err := netns.Create("bench-iptables")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	held := 0
	for i, size := range o.Sizes {
		fmt.Fprintf(o.Progress, "bench: iptables, %d services\n", size)
		all, err := timed(func() error { return restore(ctx, ns, rules(held, size)) })
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, bench.Plain(fmt.Sprintf("iptables, all of %d at once (from %d)", size, held), "ms", all))
		held = size
		var more []float64
		for run := range iptablesRuns {
			took, err := timed(func() error { return restore(ctx, ns, rules(moreOurs+run, moreOurs+run+1)) })
			if err != nil {
				return err
			}
			more = append(more, took)
		}
		row := bench.Plain(fmt.Sprintf("iptables, one more among %d", size), "ms", more...)
		if p, known := published[size]; known {
			row = row.ComparedWith("published, iptables", p.iptables)
		}
		r.Rows = append(r.Rows, row)
		if next := o.Sizes[i:]; (all+more[0])/1000 > o.IPTables.Seconds() && len(next) > 1 {
			r.Note("iptables was cut off: %d services took %.0f s, so %v were not tried (--iptables %s).", size, (all+more[0])/1000, next[1:], o.IPTables)
			break
		}
	}
	r.Note("iptables-legacy has eight rules a service, of kube-proxy's chains; one more is one call of iptables-restore --noflush. The published figures are of a call a rule.")
	return nil
}

// rules returns the services in [from, to) as chains like kube-proxy's, in the format of
// iptables-restore.
func rules(from, to int) string {
	var chains, lines strings.Builder
	if from == 0 {
		chains.WriteString(":KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n")
		lines.WriteString("-A PREROUTING -j KUBE-SERVICES\n-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n")
	}
	for i := from; i < to; i++ {
		f := frontend(i)
		to := fmt.Sprintf("-d %s/32 -p tcp -m comment --comment \"default/web-%d cluster IP\" -m tcp --dport %d", f.VIP, i, f.Port)
		fmt.Fprintf(&chains, ":KUBE-SVC-%016X - [0:0]\n", i)
		fmt.Fprintf(&lines, "-A KUBE-SERVICES %s -j KUBE-SVC-%016X\n", to, i)
		fmt.Fprintf(&lines, "-A KUBE-SVC-%016X ! -s 172.16.0.0/16 %s -j KUBE-MARK-MASQ\n", i, to)
		for n, b := range f.Backends {
			choice := ""
			if left := len(f.Backends) - n; left > 1 {
				choice = fmt.Sprintf(" -m statistic --mode random --probability %.10f", 1/float64(left))
			}
			fmt.Fprintf(&chains, ":KUBE-SEP-%015X%d - [0:0]\n", i, n)
			fmt.Fprintf(&lines, "-A KUBE-SVC-%016X%s -j KUBE-SEP-%015X%d\n", i, choice, i, n)
			fmt.Fprintf(&lines, "-A KUBE-SEP-%015X%d -s %s/32 -j KUBE-MARK-MASQ\n", i, n, b.Addr.Addr())
			fmt.Fprintf(&lines, "-A KUBE-SEP-%015X%d -p tcp -m tcp -j DNAT --to-destination %s\n", i, n, b.Addr)
		}
	}
	return "*nat\n" + chains.String() + lines.String() + "COMMIT\n"
}

func restore(ctx context.Context, ns *netns.NS, input string) error {
	return ns.Do(func() error {
		cmd := exec.CommandContext(ctx, "iptables-legacy-restore", "--noflush")
		cmd.Stdin = strings.NewReader(input)
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("iptables-legacy-restore: %w: %s", err, strings.TrimSpace(string(said)))
		}
		return nil
	})
}
