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

// Job is what a program does with a cluster of its own.
type Job struct {
	// Name is the program's, and its sandbox's.
	Name string
	// Programs are those of Kubernetes that it needs beside the nodes'.
	Programs []string
	// Logs is the folder for logs, which is emptied; Limit how long all may take.
	Logs  string
	Limit time.Duration
	// Prepare gives the cluster's options. It is called in the sandbox, and adds to
	// those that it is given, which name the folder for logs.
	Prepare func(Options) (Options, error)
	// Do does it.
	Do func(context.Context, *Cluster) error
}

// Run does a job in a sandbox, until it is done or a signal ends it, and leaves
// nothing behind but logs.
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

// Main is the end of a program's main: it runs the job, unless wrong says that it
// was asked for what there is not, and ends with an exit code.
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
