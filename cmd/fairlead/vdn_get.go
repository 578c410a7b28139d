package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// vdnClientFlags adds the flags that select the controller.
func vdnClientFlags(cmd *cobra.Command, c *client.Config) {
	f := cmd.Flags()
	f.StringVar(&c.URL, "controller", client.DefaultURL, "`URL` of the controllers, separated by commas")
	f.StringVar(&c.TokenFile, "token-file", "", "`FILE` with the token")
	f.StringVar(&c.CAFile, "ca-file", "", "`FILE` with the controller's CA (PEM; default: the system's)")
	f.DurationVar(&c.Timeout, "timeout", client.DefaultTimeout, "timeout of a request")
}

// vdnQuery holds the flags that query commands of the controller share.
type vdnQuery struct {
	query.Printer
	config client.Config
}

func (q *vdnQuery) flags(cmd *cobra.Command) {
	vdnClientFlags(cmd, &q.config)
	q.Printer.Flags(cmd)
}

// show queries the controller and prints a part of its view.
func (q *vdnQuery) show(cmd *cobra.Command, sheet func(vdn.View) status.Sheet) error {
	view, err := q.view(cmd.Context())
	if err != nil {
		return err
	}
	return q.Print(cmd.OutOrStdout(), sheet(view))
}

func (q *vdnQuery) view(ctx context.Context) (vdn.View, error) {
	c, err := client.New(q.config)
	if err != nil {
		return vdn.View{}, err
	}
	view, _, err := c.View(ctx, 0, 0)
	return view, err
}

// networkNames completes the first argument by the names of networks.
func (q *vdnQuery) networkNames(_ *cobra.Command, args []string, prefix string) (names []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), query.CompletionTimeout)
	defer cancel()
	if view, err := q.view(ctx); err == nil && len(args) == 0 {
		for _, n := range view.Networks {
			names = append(names, n.Name)
		}
	}
	return query.Matching(names, prefix), cobra.ShellCompDirectiveNoFileComp
}

func newVDNGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List networks, leases, nodes or peers",
		Long:  `List what the controller of virtual networks knows.`,
		Example: `  fairlead vdn get networks
  fairlead vdn get leases --network science -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVDNGetNetworksCommand(), newVDNGetLeasesCommand(), newVDNGetNodesCommand(), newVDNGetPeersCommand())
	return cmd
}

func newVDNGetNetworksCommand() *cobra.Command {
	var q vdnQuery
	cmd := &cobra.Command{
		Use:   "networks",
		Short: "List networks, their rates and their number of hosts",
		Long: `List the controller's networks: subnets, number of leases, guaranteed and maximum
rate on each uplink, and the networks they may reach. Notes name settings that are
not in effect.`,
		Example: `  fairlead vdn get networks
  fairlead vdn get networks -o json --controller https://10.0.0.5:7473 --token-file token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return q.show(cmd, networksSheet) },
	}
	q.flags(cmd)
	return cmd
}

func networksSheet(v vdn.View) status.Sheet {
	hosts := map[string]int{}
	for _, a := range v.Attachments {
		hosts[a.Network]++
	}
	s := status.Sheet{Value: v.Networks, Head: []string{"NETWORK", "MODE", "DEVICES", "SUBNETS", "HOSTS", "GUARANTEED", "MAX", "MAX PER HOST", "PEER NETWORKS"}}
	for _, note := range v.Notes {
		s.Lines = append(s.Lines, "note: "+note)
	}
	for _, n := range v.Networks {
		reach := n.PeerNetworks
		for _, p := range n.AllowedCIDRs {
			reach = append(reach[:len(reach):len(reach)], p.String())
		}
		s.Rows = append(s.Rows, []string{
			n.Name, string(cmp.Or(n.Mode, vdn.Macvlan)), strings.Join(n.Devices, ","), words(n.Prefixes()), strconv.Itoa(hosts[n.Name]),
			rateWord(n.GuaranteedRate), rateWord(n.MaxRate), rateWord(n.MaxRatePerHost), strings.Join(reach, ","),
		})
	}
	return s
}

// rateWord returns "" for a rate that is not set.
func rateWord(r vdn.Rate) string {
	if r == 0 {
		return ""
	}
	return r.String()
}

func words[T fmt.Stringer](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.String()
	}
	return strings.Join(texts, ",")
}

func newVDNGetLeasesCommand() *cobra.Command {
	var q vdnQuery
	var network, node string
	cmd := &cobra.Command{
		Use:   "leases",
		Short: "List leases: the hosts of networks, their addresses, nodes and devices",
		Long: `List the leases of the networks: addresses, node and device, and the phase: up (the
device exists) or leased (only the addresses are reserved).`,
		Example: `  fairlead vdn get leases
  fairlead vdn get leases --network science --node node-1 -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := client.New(q.config)
			if err != nil {
				return err
			}
			all, err := c.Attachments(cmd.Context(), network, node)
			if err != nil {
				return err
			}
			return q.Print(cmd.OutOrStdout(), leasesSheet(all))
		},
	}
	q.flags(cmd)
	cmd.Flags().StringVar(&network, "network", "", "only leases of network `NAME`")
	cmd.Flags().StringVar(&node, "node", "", "only leases on node `NAME`")
	_ = cmd.RegisterFlagCompletionFunc("network", q.networkNames) // fails only for a flag that does not exist
	return cmd
}

func leasesSheet(all []vdn.Attachment) status.Sheet {
	s := status.Sheet{Value: all, Head: []string{"LEASE", "NETWORK", "NODE", "DEVICE", "ADDRESSES", "PHASE", "OWNER"}}
	for _, a := range all {
		s.Rows = append(s.Rows, []string{a.ID, a.Network, a.Node, a.Device, words(a.Addresses), string(a.Phase), a.Owner})
	}
	return s
}

func newVDNGetNodesCommand() *cobra.Command {
	var q vdnQuery
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List nodes, the plan that each enforces, and errors",
		Long: `List the nodes that enforce networks: the last report, the revision of the plan that
each enforces, its uplinks, and the error if it does not enforce the newest plan.`,
		Example: `  fairlead vdn get nodes
  fairlead vdn get nodes -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return q.show(cmd, nodesSheet) },
	}
	q.flags(cmd)
	return cmd
}

func nodesSheet(v vdn.View) status.Sheet {
	s := status.Sheet{Value: v.Nodes, Head: []string{"NODE", "ALIVE", "LAST REPORT", "ENFORCER", "GATEWAY", "UPLINKS", "PLAN", "ERROR"}}
	for _, n := range v.Nodes {
		for _, lost := range n.Degraded {
			s.Lines = append(s.Lines, "degraded: node "+n.Name+": "+lost)
		}
	}
	for _, n := range v.Nodes {
		var uplinks []string
		for _, u := range n.Uplinks {
			uplinks = append(uplinks, u.Device+"="+u.Rate.String())
		}
		age := time.Duration(n.ReportAge * float64(time.Second)).Truncate(time.Second)
		s.Rows = append(s.Rows, []string{
			n.Name, yes(n.Alive), age.String() + " ago", n.Means, yes(n.Gateway), strings.Join(uplinks, ","),
			strconv.FormatUint(n.Applied, 10), n.Error,
		})
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func newVDNGetPeersCommand() *cobra.Command {
	var q vdnQuery
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "List federated domains and their networks",
		Long: `List the federated domains: whether they are connected, which networks they share,
and the reason if a network of theirs is not accepted.`,
		Example: `  fairlead vdn get peers
  fairlead vdn get peers -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return q.show(cmd, vdnPeersSheet) },
	}
	q.flags(cmd)
	return cmd
}

func vdnPeersSheet(v vdn.View) status.Sheet {
	peers := append([]vdn.PeerView{}, v.Peers...) // [] in JSON, never null
	s := status.Sheet{Value: peers, Head: []string{"PEER", "CONNECTED", "NEXT HOPS", "NETWORK", "PREFIXES", "HOSTS", "REASON"}}
	for _, p := range peers {
		row := []string{p.Domain, yes(p.Connected), words[netip.Addr](p.NextHops)}
		if len(p.Networks) == 0 {
			s.Rows = append(s.Rows, append(row, "", "", "", p.Error))
		}
		for _, n := range p.Networks {
			why := cmp.Or(n.Refused, p.Error)
			s.Rows = append(s.Rows, append(row[:len(row):len(row)], n.Name, words(n.Prefixes), strconv.Itoa(len(n.Hosts)), why))
		}
	}
	return s
}
