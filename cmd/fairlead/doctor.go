package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/agent/doctor/gather"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/core/service"
)

func newDoctorCommand() *cobra.Command {
	agent := config.DefaultAgent()
	o := doctor.Options{DataPlane: agent.DataPlane, BPFFS: agent.BPFFS, Health: agent.Health, GUEPort: service.DefaultGUEPort}
	var q query.Query
	var roles []string
	var exitZero bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can run Fairlead, and print fixes",
		Long: `Check the kernel, its BPF features, interfaces, sysctls, ports and other software
for what the roles need. A finding is ok, info, unknown (it could not be checked),
degraded (a feature is lost) or broken (a role does not start, or packets are
dropped). Degraded and broken findings come with a fix.

Run it before an agent starts or while one runs: it changes nothing and takes at
most two seconds. Without root, it reports what it could not check. Exit code 1
means that at least one finding is broken.`,
		Example: `  fairlead doctor
  fairlead doctor --role balancer --interface eth0 --manifest-dir /etc/fairlead/services
  fairlead doctor --role router
  fairlead doctor -o json | jq '.findings[] | select(.status == "broken")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := doctorOptions(&o, roles); err != nil {
				return err
			}
			o.Socket = q.Socket
			facts, examined := gather.Collect(cmd.Context(), o)
			r := doctor.Examine(facts, examined)
			if err := q.Print(cmd.OutOrStdout(), status.Sheet{Value: r, Lines: r.Lines()}); err != nil {
				return err
			}
			if r.Broken > 0 && !exitZero {
				return fmt.Errorf("doctor: %s", r.Summary())
			}
			return nil
		},
	}
	q.BasicFlags(cmd)
	cmd.GroupID = groupQuery
	f := cmd.Flags()
	f.StringSliceVar(&roles, "role", nil, "roles to check for: "+strings.Join(doctorRoles(), ", ")+" (default: those of the running agent, else balancer,dsr)")
	f.StringSliceVar(&o.Interfaces, "interface", nil, "`NAME` of an interface to check; repeatable (default: those with a default route)")
	f.StringVar(&o.DataPlane, "dataplane", o.DataPlane, "xdp, ipvs, or auto")
	f.StringVar(&o.BPFFS, "bpffs", o.BPFFS, "`DIR` of the BPF file system")
	f.StringVar(&o.Services, "manifest-dir", "", "`DIR` of manifests to check for access")
	f.StringVar(&o.Cgroup, "cgroup", "", "`DIR` where cgroup v2 is mounted, for role proxy (default: found)")
	f.StringVar(&o.Health, "health-address", o.Health, "`ADDR:PORT` of the service proxy's health check; empty for none")
	f.Uint16Var(&o.GUEPort, "gue-port", o.GUEPort, "UDP `PORT` of GUE tunnels")
	f.BoolVar(&exitZero, "exit-zero", false, "exit with 0 even if a finding is broken")
	metricsFlag(cmd, &o.Metrics)
	for flag, values := range map[string][]string{"dataplane": config.DataPlanes, "role": doctorRoles()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func doctorRoles() (names []string) {
	for _, r := range doctor.Roles {
		names = append(names, string(r))
	}
	return names
}

// doctorOptions validates what flag parsing does not.
func doctorOptions(o *doctor.Options, roles []string) error {
	for _, name := range roles {
		if !slices.Contains(doctor.Roles, doctor.Role(name)) {
			return config.Invalid(fmt.Errorf("--role: %q is not one of %s", name, strings.Join(doctorRoles(), ", ")))
		}
		o.Roles = append(o.Roles, doctor.Role(name))
	}
	if !slices.Contains(config.DataPlanes, o.DataPlane) {
		return config.Invalid(fmt.Errorf("--dataplane: %q is not one of %s", o.DataPlane, strings.Join(config.DataPlanes, ", ")))
	}
	return nil
}
