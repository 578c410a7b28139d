package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/dataplane/cleanup"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/internal/sleep"
)

func newCleanupCommand() *cobra.Command {
	bpffs := config.DefaultAgent().BPFFS
	var wait time.Duration
	var stay bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Take out of the kernel what agents left on this node",
		Long: `Cleanup ends what goes on when an agent has ended: programs at interfaces and
cgroups, their maps, filters, services of IPVS, what shares the rate of uplinks
among virtual networks, and routes to those of other domains. Connections through this node
that are not between its clients and servers directly end with them. Sysctls
stay as the agents set them. It refuses while an agent runs.`,
		Example: `  fairlead cleanup
  fairlead cleanup --wait 2m --keep-running`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lacking := lacks(cleanupPrivileges(bpffs)...)
			if err := cleanUp(cmd.Context(), filepath.Join(bpffs, "fairlead"), wait); err != nil {
				return held.Blame(err, lacking)
			}
			slog.Info("nothing is left", "bpffs", bpffs)
			if stay {
				<-cmd.Context().Done()
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&bpffs, "bpffs", bpffs, "BPF file system `folder` that the agents pinned in")
	f.DurationVar(&wait, "wait", 0, "how long to wait for an agent to end")
	f.BoolVar(&stay, "keep-running", false, "do not end when done, but when told to: for the pods of a DaemonSet")
	return cmd
}

// cleanUp removes everything as soon as no agent is running.
func cleanUp(ctx context.Context, folder string, wait time.Duration) error {
	for end := time.Now().Add(wait); ; {
		err := cleanUpVDN(folder)
		if !errors.Is(err, cleanup.ErrInUse) {
			err = errors.Join(err, cleanup.Node(folder))
		}
		if !errors.Is(err, cleanup.ErrInUse) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: end it, and clean up then", err)
		}
		if !sleep.For(ctx, time.Second) {
			return ctx.Err()
		}
	}
}
