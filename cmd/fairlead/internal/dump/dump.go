// Package dump is the command fairlead sysdump. What it collects is up to agent/sysdump. It is
// tested in lab/e2e/faults, and with secrets in lab/e2e/security.
package dump

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/sysdump"
	"github.com/fairlead/fairlead/agent/sysdump/gather"
	"github.com/fairlead/fairlead/core/service"
)

// dump are the flags of fairlead sysdump.
type dump struct {
	gather.Options
	file    string
	maxSize int64 // in MiB
	timeout time.Duration
}

// Command returns the command, in a group of the help.
func Command(group string) *cobra.Command {
	agent := config.DefaultAgent()
	d := dump{maxSize: sysdump.DefaultMaxSize >> 20, timeout: time.Minute}
	d.Doctor.DataPlane, d.Doctor.BPFFS, d.Doctor.Health, d.Doctor.GUEPort = agent.DataPlane, agent.BPFFS, agent.Health, service.DefaultGUEPort
	cmd := &cobra.Command{
		Use:   "sysdump [ARCHIVE...]",
		Short: "Collect everything about this machine in an archive, and name what is wrong",
		Long: `Write an archive of what helps to find a fault: the views of all agents, reflectors and
routers here as JSON, events, explanations of Services, logs, manifests, profiles, the
findings of fairlead doctor, and the kernel's links, routes, rules, next hops, BPF
programs and maps. Passwords, tokens and keys are removed; addresses and names are not.

On top of the archive, and on standard output, is a summary: findings by severity,
each with its likely cause and a fix. Counters are observed for a moment, so that the
summary distinguishes current drops from earlier ones.

With ARCHIVEs of several machines, write one archive of all, with one summary and the
verdict whether they agree. kubectl fairlead sysdump does that for a cluster.`,
		Example: `  fairlead sysdump
  fairlead sysdump --file - > lb1.tar.gz
  fairlead sysdump lb1.tar.gz lb2.tar.gz router.tar.gz`,
		GroupID: group,
		RunE: func(cmd *cobra.Command, args []string) error {
			d.MaxSize = d.maxSize << 20
			ctx, cancel := context.WithTimeout(cmd.Context(), d.timeout)
			defer cancel()
			if len(args) > 0 {
				return d.merge(cmd, args)
			}
			archive, all, summary, err := gather.Collect(ctx, d.Options)
			if err != nil {
				return err
			}
			return d.write(cmd, archive, all, summary)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&d.Sockets, "socket", nil, "`FILE` of a daemon's socket; repeatable (default: all in /run/fairlead)")
	f.StringVarP(&d.file, "file", "f", "", "`FILE` of the archive, - for standard output (default: named after the node and the time)")
	f.Int64Var(&d.maxSize, "max-size", d.maxSize, "size of the archive in `MiB`; what does not fit is left out and named")
	f.DurationVar(&d.Since, "since", time.Hour, "how far back logs go")
	f.DurationVar(&d.Observe, "observe", 3*time.Second, "how long counters and profiles are observed")
	f.DurationVar(&d.timeout, "timeout", d.timeout, "time after which what is missing is left out")
	return cmd
}

// merge writes one archive of several.
func (d *dump) merge(cmd *cobra.Command, files []string) error {
	var parts []sysdump.Part
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		parts = append(parts, sysdump.Part{Name: strings.TrimSuffix(strings.TrimSuffix(filepath.Base(name), ".gz"), ".tar"), Dump: file})
	}
	archive, all, summary := sysdump.Cluster{Parts: parts}.Merge(time.Now(), d.MaxSize)
	return d.write(cmd, archive, all, summary)
}

// write writes the archive, and prints the summary.
func (d *dump) write(cmd *cobra.Command, archive *sysdump.Archive, all []sysdump.Finding, summary []byte) error {
	if d.file == "-" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s", summary)
		return sysdump.Write(cmd.OutOrStdout(), archive, summary, all)
	}
	name := d.file
	if name == "" {
		name = fmt.Sprintf("fairlead-%s-%s.tar.gz", archive.Root, archive.Time.UTC().Format("20060102-150405"))
	}
	return sysdump.WriteFile(name, archive, summary, all, cmd.OutOrStdout())
}
