// Package vdn measures the controller of virtually dedicated networks as a separate
// process that is killed while clients use it.
package vdn

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// Options configures Attachments.
type Options struct {
	// Binary is the fairlead binary.
	Binary string
	// Attachments is the total number of attachments, made by Clients concurrent clients.
	Attachments, Clients int
	// Kills is how often the controller is killed (SIGKILL) and started again during the
	// run, evenly spread.
	Kills int
	// Log receives the controller's log. It may be nil.
	Log *os.File
}

// Result is the result of Attachments.
type Result struct {
	Attachments int
	Elapsed     time.Duration
	// PerMinute is the number of attachments leased and brought up per minute, including
	// the controller's downtime.
	PerMinute float64
	// Kills is the number of kills, Retries the number of requests repeated because the
	// controller was down.
	Kills, Retries int
	// Double is the number of addresses assigned twice. Lost is the number of granted
	// leases that are missing or different at the end.
	Double, Lost int
}

// network has enough addresses for all attachments.
const network = "science"

// Attachments attaches Options.Attachments containers and brings each of them up, while
// the controller is killed repeatedly.
func Attachments(ctx context.Context, o Options) (r Result, err error) {
	folder, err := os.MkdirTemp("", "fairlead-vdn-")
	if err != nil {
		return r, err
	}
	c := &controller{options: o, folder: folder}
	defer func() { err = errors.Join(err, c.kill(), os.RemoveAll(folder)) }()
	api, err := c.begin(ctx)
	if err != nil {
		return r, err
	}
	began := time.Now()
	granted, retries, err := c.load(ctx, api)
	r = Result{Attachments: len(granted), Elapsed: time.Since(began), Kills: c.kills, Retries: retries}
	if err != nil {
		return r, err
	}
	r.PerMinute = float64(len(granted)) / r.Elapsed.Minutes()
	stored, err := api.Attachments(ctx, network, "")
	if err != nil {
		return r, err
	}
	r.Double, r.Lost = judge(granted, stored)
	return r, nil
}

// judge compares the leases granted to clients with those that the controller has stored.
func judge(granted, stored []vdn.Attachment) (double, lost int) {
	owner, there := map[netip.Prefix]string{}, map[string]vdn.Attachment{}
	for _, a := range stored {
		there[a.ID] = a
	}
	for _, a := range append(slices.Clone(granted), stored...) {
		for _, p := range a.Addresses {
			if by := owner[p]; by != "" && by != a.ID {
				double++
			}
			owner[p] = a.ID
		}
	}
	for _, a := range granted {
		if k, ok := there[a.ID]; !ok || k.Phase != vdn.Up || !slices.Equal(k.Addresses, a.Addresses) {
			lost++
		}
	}
	return double, lost
}

// controller is the controller process.
type controller struct {
	options Options
	folder  string
	cmd     *exec.Cmd
	kills   int
}

// startLimit is the time limit for the controller to answer. It allows for a busy
// machine.
const startLimit = time.Minute

// begin starts the controller and creates the network.
func (c *controller) begin(ctx context.Context) (*client.Client, error) {
	api, err := client.New(client.Config{URL: c.url(), Timeout: startLimit})
	if err != nil {
		return nil, err
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	n := vdn.Network{Name: network, Devices: []string{"eth1"}, Subnets: []vdn.Subnet{
		{CIDR: netip.MustParsePrefix("10.64.0.0/16")}, {CIDR: netip.MustParsePrefix("fd64::/64")},
	}}
	_, err = again(ctx, func() error { return api.PutNetwork(ctx, n) })
	return api, err
}

func (c *controller) url() string { return "unix://" + filepath.Join(c.folder, "api.sock") }

func (c *controller) start() error {
	c.cmd = exec.Command(c.options.Binary, "vdn", "controller", "--data", c.folder, "--listen", c.url(), "--log-level", "WARN")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.options.Log != nil {
		c.cmd.Stderr = c.options.Log
	}
	return c.cmd.Start()
}

// kill ends the controller like a crash does. Without a running one it does nothing.
func (c *controller) kill() error {
	if c.cmd == nil || c.cmd.Process == nil {
		return nil
	}
	err := c.cmd.Process.Kill()
	var exit *exec.ExitError
	if died := c.cmd.Wait(); died != nil && !errors.As(died, &exit) {
		err = errors.Join(err, died)
	}
	c.cmd = nil
	return err
}

// load lets the clients attach, and kills the controller meanwhile.
func (c *controller) load(ctx context.Context, api *client.Client) (granted []vdn.Attachment, retries int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type done struct {
		attachment vdn.Attachment
		retries    int
		err        error
	}
	results := make(chan done)
	next := make(chan int)
	go func() {
		defer close(next)
		for i := range c.options.Attachments {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	var clients sync.WaitGroup
	for range c.options.Clients {
		clients.Go(func() {
			for i := range next {
				a, tries, err := attach(ctx, api, i)
				results <- done{a, tries, err}
			}
		})
	}
	go func() {
		clients.Wait()
		close(results)
	}()
	for r := range results {
		retries += r.retries
		if r.err != nil {
			err = errors.Join(err, r.err)
			stop()
			continue
		}
		granted = append(granted, r.attachment)
		if err == nil && c.kills < c.options.Kills && len(granted) >= (c.kills+1)*c.options.Attachments/(c.options.Kills+1) {
			c.kills++
			if err = errors.Join(c.kill(), c.start()); err != nil {
				stop()
			}
		}
	}
	return granted, retries, err
}

// attach leases one attachment and brings it up.
func attach(ctx context.Context, api *client.Client, i int) (a vdn.Attachment, retries int, err error) {
	request := vdn.AttachmentRequest{
		Network: network, Node: fmt.Sprintf("node-%d", i%10), Container: fmt.Sprintf("container-%d", i), Interface: "eth0",
	}
	retries, err = again(ctx, func() error {
		lease, err := api.Attach(ctx, request)
		a = lease.Attachment
		return err
	})
	if err != nil {
		return a, retries, err
	}
	more, err := again(ctx, func() error {
		_, err := api.Up(ctx, a.ID, vdn.UpReport{Device: "eth1", MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8&0xff, i&0xff), NetNS: "/run/netns/" + request.Container})
		return err
	})
	return a, retries + more, err
}

// again repeats a request until the controller is available.
func again(ctx context.Context, call func() error) (retries int, err error) {
	const pause = 10 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if err = call(); !client.IsUnavailable(err) {
			return retries, err
		}
		retries++
		select {
		case <-ctx.Done():
			return retries, err
		case <-time.After(pause):
		}
	}
}
