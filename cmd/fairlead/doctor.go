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
	"github.com/fairlead/fairlead/core/service"
)

func newDoctorCommand() *cobra.Command {
	agent := config.DefaultAgent()
	o := doctor.Options{DataPlane: agent.DataPlane, BPFFS: agent.BPFFS, Health: agent.Health, GUEPort: service.DefaultGUEPort}
	var l look
	var roles []string
	var exitZero bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can run Fairlead, and how to fix what is wrong",
		Long: `Check the kernel, its BPF features, interfaces, sysctls, ports and other software
for what the roles need. Each finding is ok, info, unknown (it could not be
checked), degraded (something is lost) or broken (a role does not start, or packets
are dropped); what is degraded or broken comes with a fix.

Run it before an agent's first start, or while one runs: it changes nothing, and
takes two seconds at most. Run it as root: for another user, it
reports what it could not check. Exit code 1 means that something is broken.`,
		Example: `  fairlead doctor
  fairlead doctor --role balancer --interface eth0 --manifest-dir /etc/fairlead/services
  fairlead doctor --role router
  fairlead doctor -o json | jq '.findings[] | select(.status == "broken")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := doctorOptions(&o, roles); err != nil {
				return err
			}
			o.Socket = l.socket
			facts, examined := gather.Collect(cmd.Context(), o)
			r := doctor.Examine(facts, examined)
			if err := status.Write(cmd.OutOrStdout(), status.Sheet{Value: r, Lines: r.Lines()}, l.format); err != nil {
				return err
			}
			if r.Broken > 0 && !exitZero {
				return fmt.Errorf("doctor: %s", r.Summary())
			}
			return nil
		},
	}
	l.basicFlags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&roles, "role", nil, "roles to check for: "+strings.Join(doctorRoles(), ", ")+" (default: those of the running agent, else balancer,server)")
	f.StringSliceVar(&o.Interfaces, "interface", nil, "`name`s of the interfaces to check (default: those with a default route)")
	f.StringVar(&o.DataPlane, "dataplane", o.DataPlane, "xdp, ipvs, or auto")
	f.StringVar(&o.BPFFS, "bpffs", o.BPFFS, "BPF file system `folder` that agents pin in")
	f.StringVar(&o.Services, "manifest-dir", "", "`folder` of manifests to check for access")
	f.StringVar(&o.Cgroup, "cgroup", "", "`folder` of the root of cgroup v2, for the role proxy (default: where it is mounted)")
	f.StringVar(&o.Health, "health-address", o.Health, "`address:port` of the service proxy's health check; empty for none")
	f.Uint16Var(&o.GUEPort, "gue-port", o.GUEPort, "UDP `port` of GUE tunnels")
	f.BoolVar(&exitZero, "exit-zero", false, "exit with 0 even if something is broken")
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
			return config.Invalid(fmt.Errorf("--role: %q is none of %s", name, strings.Join(doctorRoles(), ", ")))
		}
		o.Roles = append(o.Roles, doctor.Role(name))
	}
	if !slices.Contains(config.DataPlanes, o.DataPlane) {
		return config.Invalid(fmt.Errorf("--dataplane: %q is none of %s", o.DataPlane, strings.Join(config.DataPlanes, ", ")))
	}
	return nil
}
