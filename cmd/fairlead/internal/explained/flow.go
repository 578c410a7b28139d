// Package explained is what fairlead explain flow asks an agent: a trace of a packet of the
// flow, or its entry in a flow table. Explaining the answer is up to agent/explain.
package explained

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/pktgen"
)

// Flow explains one flow.
type Flow struct {
	query.Query
	// Packet is a packet of the flow: its protocol, and what else flags set.
	Packet pktgen.Packet
	frame  []byte
	facts  explain.FlowFacts
}

// Parse reads the arguments, client and VIP; errors are usage errors.
func (f *Flow) Parse(args []string) (err error) {
	for i, to := range []*netip.AddrPort{&f.facts.Client, &f.facts.VIP} {
		if *to, err = netip.ParseAddrPort(args[i]); err != nil {
			return fmt.Errorf("%q is not an address and port, as in 192.0.2.7:1234 or [2001:db8::7]:1234", args[i])
		}
	}
	if err := f.facts.Protocol.UnmarshalText([]byte(strings.ToUpper(f.Packet.Protocol))); err != nil || f.facts.Protocol == service.AnyProtocol {
		return fmt.Errorf("--protocol: %q is not tcp, udp or sctp", f.Packet.Protocol)
	}
	f.Packet.From, f.Packet.To = f.facts.Client, f.facts.VIP
	if f.frame, err = f.Packet.Frame(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

// Run queries the agent and prints the explanation.
func (f *Flow) Run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, query.Timeout)
	defer cancel()
	s, err := f.FetchOnly(ctx, selection.Selection{Addresses: []netip.Addr{f.facts.VIP.Addr()}})
	if err != nil {
		return err
	}
	if s.DataPlane != nil && s.DataPlane.Kind == "xdp" {
		err = f.trace(ctx)
	} else {
		err = f.track(ctx, s)
	}
	if err != nil {
		return err
	}
	return f.Print(out, explain.View([]explain.Chain{explain.Flow(s, f.facts)}))
}

// trace traces a packet of the flow.
func (f *Flow) trace(ctx context.Context) error {
	ask, err := json.Marshal(xdp.TraceRequest{Frame: f.frame})
	if err != nil {
		return err
	}
	f.facts.Trace = &xdp.Trace{}
	return f.DoJSON(ctx, http.MethodPost, api.TracePath, nil, bytes.NewReader(ask), f.facts.Trace)
}

// track looks for the flow where it is tracked.
func (f *Flow) track(ctx context.Context, s status.Status) error {
	if s.DataPlane == nil && s.DSRAgent == nil {
		return errors.New("this agent forwards no flows: query a load balancer or a node with backends")
	}
	params := url.Values{"client": {f.facts.Client.String()}, "vip": {f.facts.VIP.String()}, "limit": {"1"}}
	body, err := f.Do(ctx, http.MethodGet, api.FlowsPath, params, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	return query.Each(ctx, body, func(one api.Flow) error {
		if one.Protocol == f.facts.Protocol {
			f.facts.Tracked = append(f.facts.Tracked, one.Flow)
		}
		return nil
	})
}
