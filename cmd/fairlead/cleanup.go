package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/networks"
	"github.com/fairlead/fairlead/dataplane/cleanup"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/internal/sleep"
)

func newCleanupCommand() *cobra.Command {
	bpffs := config.DefaultAgent().BPFFS
	var wait time.Duration
	var stay bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that agents left in this node's kernel",
		Long: `Remove what keeps running after an agent exits: programs on interfaces and cgroups,
their maps, filters, IPVS services, rate sharing of virtual networks, and routes to
networks of other domains. Connections that depend on this node end. Sysctls keep
their values. Cleanup fails while an agent runs.`,
		Example: `  fairlead cleanup
  fairlead cleanup --wait 2m --keep-running`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lacking := daemon.Lacks(cleanupPrivileges(bpffs)...)
			if err := cleanUp(cmd.Context(), filepath.Join(bpffs, "fairlead"), wait); err != nil {
				return held.Blame(err, lacking)
			}
			slog.Info("cleanup complete", "bpffs", bpffs)
			if stay {
				<-cmd.Context().Done()
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&bpffs, "bpffs", bpffs, "`DIR` of the BPF file system")
	f.DurationVar(&wait, "wait", 0, "wait up to this long for a running agent to exit")
	f.BoolVar(&stay, "keep-running", false, "after cleanup, keep running until SIGTERM, for use in a DaemonSet")
	return cmd
}

// cleanUp removes everything as soon as no agent runs.
func cleanUp(ctx context.Context, folder string, wait time.Duration) error {
	for end := time.Now().Add(wait); ; {
		err := networks.CleanUp(folder)
		if !errors.Is(err, cleanup.ErrInUse) {
			err = errors.Join(err, cleanup.Node(folder))
		}
		if !errors.Is(err, cleanup.ErrInUse) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: stop it, then run cleanup again", err)
		}
		if !sleep.For(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// cleanupPrivileges returns the roles of a cleanup below a BPF file system, as named in package
// privilege.
func cleanupPrivileges(folder string) []string {
	if _, err := os.Stat(filepath.Join(folder, config.VDNPins)); err != nil {
		return []string{privilege.Cleanup}
	}
	return []string{privilege.Cleanup, privilege.CleanupVDN}
}
