// Package cni attaches pods to virtually dedicated networks, as plugin of the
// Container Network Interface 1.1: fairlead-cni gives a pod a macvlan device or a
// whole NIC of the node, fairlead-ipam gives other plugins the addresses alone.
// Addresses, MTU, routes and DNS are what the controller (vdn/server) says; what is
// enforced at the device is vdn/node's.
//
// What a call has made is known again by the alias of the device and by a note on
// the node's disk, so that each step may be cut short and done again.
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

// Versions are those of the specification that both plugins speak.
var Versions = version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

// Funcs are what fairlead-cni answers.
func Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{Add: privileged(printed(Add)), Del: privileged(Del), Check: privileged(Check), GC: privileged(GC), Status: privileged(Status)}
}

// privileged adds to an error which capabilities the runtime did not leave us.
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

// IPAMFuncs are what fairlead-ipam answers.
func IPAMFuncs() skel.CNIFuncs {
	return skel.CNIFuncs{Add: printed(AddAddresses), Del: DelAddresses, Check: CheckAddresses, GC: GCAddresses, Status: StatusAddresses}
}

// printed has what an ADD gives written as the version that was asked for has it.
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

// call is one invocation: what it is told, and whom it may ask.
type call struct {
	Config
	container, iface, netns string
	vdn                     *client.Client
	notes                   notes
	// pod, addresses and mac are what is asked for: ADD alone reads it.
	pod       podArgs
	addresses []netip.Addr
	mac       net.HardwareAddr
}

// newCall reads what a call is told. Parse is Parse or ParseIPAM.
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

// newADD is newCall for ADD, which reads what is asked for, too. No other does: a pod
// whose user has asked for nonsense can be deleted.
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
	if c.addresses, c.mac, err = c.Wishes.read(); err != nil {
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

// id is what the controller knows the attachment by.
func (c *call) id() string { return c.container + "." + c.iface }

// deadline is for all that one call asks of others.
func (c *call) deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.Timeout)
}

// mostBrief is how long calls ask others that come to their end without an answer.
const mostBrief = 2 * time.Second

// brief is deadline for those.
func (c *call) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), min(c.Timeout, mostBrief))
}

// say tells whoever reads the runtime's log what is no error of the call.
func (c *call) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s fairlead: network %s, container %q: %s\n", time.Now().Format(time.RFC3339), c.Network, c.container, fmt.Sprintf(format, args...))
}

// Codes of errors beside those of the specification, which begin at 100.
const (
	// ErrNode: the node is not as the network wants it.
	ErrNode uint = 100
	// ErrTaken: a name or an address is another's.
	ErrTaken uint = 101
	// ErrChanged: CHECK finds what ADD did not make.
	ErrChanged uint = 102
)

func fail(code uint, format string, args ...any) error {
	return types.NewError(code, fmt.Sprintf(format, args...), "")
}

// refused gives a controller's no, or its silence, the specification's code.
func (c *call) refused(err error) error {
	var no *client.Error
	switch {
	case err == nil:
		return nil
	case client.IsUnavailable(err), client.IsStatus(err, http.StatusConflict): // what is taken may be given back
		return fail(types.ErrTryAgainLater, "network %s: %v", c.Network, err)
	case errors.As(err, &no):
		return fail(types.ErrInvalidNetworkConfig, "network %s: %v", c.Network, err)
	}
	return fail(types.ErrInternal, "network %s: %v", c.Network, err)
}
