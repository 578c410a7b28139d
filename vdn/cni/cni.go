// Package cni attaches pods to virtually dedicated networks as plugins of the Container
// Network Interface 1.1. fairlead-cni gives a pod a macvlan device or an entire NIC of the
// node; fairlead-ipam only leases addresses for other plugins. The controller (vdn/server)
// assigns addresses, MTU, routes and DNS; vdn/node enforces the network at the device.
//
// A device alias and a note on the node's disk identify what a call created, so that each
// step can be interrupted and repeated.
package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/vdn/client"
)

// Versions are the specification versions that both plugins support.
var Versions = version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

// Funcs returns the commands of fairlead-cni.
func Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{Add: privileged(printed(Add)), Del: privileged(Del), Check: privileged(Check), GC: privileged(GC), Status: privileged(Status)}
}

// privileged adds the capabilities that the runtime withheld to an error.
func privileged(f func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		err := f(args)
		lacks := held.Lacks(privilege.CNI)
		if err == nil || lacks == nil {
			return err
		}
		var e *types.Error
		if !errors.As(err, &e) {
			return fmt.Errorf("%w; %w", err, lacks)
		}
		return types.NewError(e.Code, e.Msg, strings.TrimPrefix(e.Details+"; "+lacks.Error(), "; "))
	}
}

// IPAMFuncs returns the commands of fairlead-ipam.
func IPAMFuncs() skel.CNIFuncs {
	return skel.CNIFuncs{Add: printed(AddAddresses), Del: DelAddresses, Check: CheckAddresses, GC: GCAddresses, Status: StatusAddresses}
}

// printed prints the result of ADD in the requested version.
func printed(add func(*skel.CmdArgs) (*current.Result, error)) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		result, err := add(args)
		if err != nil {
			return err
		}
		decoded, err := (&version.ConfigDecoder{}).Decode(args.StdinData)
		if err != nil {
			return err
		}
		return types.PrintResult(result, decoded)
	}
}

// call is one invocation: its configuration and its controller client.
type call struct {
	Config
	container, iface, netns string
	vdn                     *client.Client
	notes                   notes
	// pod, addresses and mac are what the runtime requests; only ADD reads them.
	pod       podArgs
	addresses []netip.Addr
	mac       net.HardwareAddr
}

// newCall reads the input of a call. parse is Parse or ParseIPAM.
func newCall(args *skel.CmdArgs, parse func([]byte) (Config, error)) (*call, error) {
	conf, err := parse(args.StdinData)
	if err != nil {
		return nil, err
	}
	c := &call{Config: conf, container: args.ContainerID, iface: args.IfName, netns: args.Netns, notes: notes{conf.DataDir}}
	c.vdn, err = client.New(client.Config{URL: conf.Controller, TokenFile: conf.TokenFile, CAFile: conf.CAFile, Timeout: conf.Timeout})
	if err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	return c, nil
}

// newADD is newCall for ADD, and also reads the requested addresses and MAC. Other commands
// do not read them, so that a pod with an invalid request can be deleted.
func newADD(args *skel.CmdArgs, parse func([]byte) (Config, error)) (*call, error) {
	c, err := newCall(args, parse)
	if err == nil {
		err = c.named()
	}
	if err != nil {
		return nil, err
	}
	if c.pod, err = parseArgs(args.Args); err != nil {
		return nil, err
	}
	if c.addresses, c.mac, err = c.RuntimeConfig.read(); err != nil {
		return nil, err
	}
	if len(c.addresses) == 0 {
		c.addresses = c.pod.addresses
	}
	if c.mac == nil {
		c.mac = c.pod.mac
	}
	return c, nil
}

// id is the controller's name for the attachment.
func (c *call) id() string { return c.container + "." + c.iface }

// deadline limits all requests of one call.
func (c *call) deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.Timeout)
}

// mostBrief limits the requests of calls that can complete without a response.
const mostBrief = 2 * time.Second

// brief is the deadline for such calls.
func (c *call) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), min(c.Timeout, mostBrief))
}

// say writes a message that is not an error of the call to the runtime's log.
func (c *call) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s fairlead: network %s, container %q: %s\n", time.Now().Format(time.RFC3339), c.Network, c.container, fmt.Sprintf(format, args...))
}

// Error codes in addition to those of the specification; plugin codes begin at 100.
const (
	// ErrNode: the node lacks what the network requires.
	ErrNode uint = 100
	// ErrTaken: a name or an address is in use.
	ErrTaken uint = 101
	// ErrChanged: CHECK found a difference from the result of ADD.
	ErrChanged uint = 102
)

func fail(code uint, format string, args ...any) error {
	return types.NewError(code, fmt.Sprintf(format, args...), "")
}

// refused converts a controller's error, or its unavailability, to a code of the
// specification.
func (c *call) refused(err error) error {
	var no *client.Error
	switch {
	case err == nil:
		return nil
	case client.IsUnavailable(err), client.IsStatus(err, http.StatusConflict): // what is in use may be released
		return fail(types.ErrTryAgainLater, "network %s: %v", c.Network, err)
	case errors.As(err, &no):
		return fail(types.ErrInvalidNetworkConfig, "network %s: %v", c.Network, err)
	}
	return fail(types.ErrInternal, "network %s: %v", c.Network, err)
}
