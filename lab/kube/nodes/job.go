package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Job is what a program does with its own cluster.
type Job struct {
	// Name is the name of the program and of its sandbox.
	Name string
	// Programs are Kubernetes programs that it needs in addition to those of the nodes.
	Programs []string
	// Logs is the folder for logs, which Run empties first; Limit is the time limit of
	// the job.
	Logs  string
	Limit time.Duration
	// Prepare returns the cluster's options. It is called in the sandbox, and adds to the
	// options that it gets, which contain the folder for logs.
	Prepare func(Options) (Options, error)
	// Do does the work.
	Do func(context.Context, *Cluster) error
}

// Run runs a job in a sandbox, until it is done or a signal ends it, and leaves nothing
// behind but logs.
func (j Job) Run() (err error) {
	if err := kube.Prepare(slices.Concat(Programs, j.Programs)...); err != nil {
		return err
	}
	if err := sandbox.Enter(sandbox.Options{Name: j.Name, Net: true}); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, j.Limit)
	defer cancel()
	o := Options{}
	if o.Logs, err = filepath.Abs(j.Logs); err != nil {
		return err
	}
	if err := os.RemoveAll(o.Logs); err != nil {
		return err
	}
	if o, err = j.Prepare(o); err != nil {
		return err
	}
	c, err := New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return j.Do(ctx, c)
}

// Main is the end of a program's main: it runs the job, unless wrong reports invalid
// arguments, and exits with an exit code.
func (j Job) Main(wrong error) {
	code, err := 2, wrong
	if wrong == nil {
		code, err = 1, j.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, j.Name+":", err)
		os.Exit(code)
	}
}
