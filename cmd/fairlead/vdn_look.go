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
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// vdnClientFlags adds the flags for reaching the controller.
func vdnClientFlags(cmd *cobra.Command, c *client.Config) {
	f := cmd.Flags()
	f.StringVar(&c.URL, "controller", client.DefaultURL, "`URL` of the controller; several are separated by commas")
	f.StringVar(&c.TokenFile, "token-file", "", "`file` with the controller's token")
	f.StringVar(&c.CAFile, "ca-file", "", "`file` with the certificate that the controller's is signed by (PEM; default: the system's)")
	f.DurationVar(&c.Timeout, "timeout", client.DefaultTimeout, "how long an answer may take")
}

// vdnLook contains what the query commands of fairlead vdn share.
type vdnLook struct {
	config client.Config
	format status.Format
}

func (l *vdnLook) flags(cmd *cobra.Command) {
	vdnClientFlags(cmd, &l.config)
	outputFlag(cmd, &l.format)
}

// show queries the controller and writes a view.
func (l *vdnLook) show(cmd *cobra.Command, sheet func(vdn.View) status.Sheet) error {
	view, err := l.view(cmd.Context())
	if err != nil {
		return err
	}
	return status.Write(cmd.OutOrStdout(), sheet(view), l.format)
}

func (l *vdnLook) view(ctx context.Context) (vdn.View, error) {
	c, err := client.New(l.config)
	if err != nil {
		return vdn.View{}, err
	}
	view, _, err := c.View(ctx, 0, 0)
	return view, err
}

// networkNames lists the networks for shell completion.
func (l *vdnLook) networkNames(cmd *cobra.Command, args []string, prefix string) (names []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if view, err := l.view(ctx); err == nil && len(args) == 0 {
		for _, n := range view.Networks {
			if strings.HasPrefix(n.Name, prefix) {
				names = append(names, n.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func newVDNNetworksCommand() *cobra.Command {
	var l vdnLook
	cmd := &cobra.Command{
		Use:   "networks",
		Short: "The networks, what they are guaranteed and allowed, and how many hosts they have",
		Long: `Networks shows the controller's networks: their subnets, how many attachments they
have, what they are guaranteed and allowed of each uplink, whom they reach, and what
does not hold although it was asked for.`,
		Example: `  fairlead vdn networks
  fairlead vdn networks -o json --controller https://10.0.0.5:7473 --token-file token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.show(cmd, networksSheet) },
	}
	l.flags(cmd)
	return cmd
}

func networksSheet(v vdn.View) status.Sheet {
	hosts := map[string]int{}
	for _, a := range v.Attachments {
		hosts[a.Network]++
	}
	s := status.Sheet{Value: v.Networks, Head: []string{"NETWORK", "MODE", "DEVICES", "SUBNETS", "HOSTS", "GUARANTEE", "MAX", "PER HOST", "REACHES"}}
	for _, note := range v.Notes {
		s.Lines = append(s.Lines, "note: "+note)
	}
	for _, n := range v.Networks {
		reach := n.Reach
		for _, p := range n.Outside {
			reach = append(reach[:len(reach):len(reach)], p.String())
		}
		s.Rows = append(s.Rows, []string{
			n.Name, string(cmp.Or(n.Mode, vdn.Macvlan)), strings.Join(n.Devices, ","), words(n.Prefixes()), strconv.Itoa(hosts[n.Name]),
			rateWord(n.Guarantee), rateWord(n.Max), rateWord(n.HostMax), strings.Join(reach, ","),
		})
	}
	return s
}

// rateWord returns "" if the rate is not set.
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

func newVDNAttachmentsCommand() *cobra.Command {
	var l vdnLook
	var network, node string
	cmd := &cobra.Command{
		Use:   "attachments",
		Short: "Who is attached to which network, where, and with which addresses",
		Long: `Attachments shows the hosts of the networks: their addresses, nodes and devices, and
whether they have their device (up) or their addresses only (leased).`,
		Example: `  fairlead vdn attachments
  fairlead vdn attachments --network science --node node-1 -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := client.New(l.config)
			if err != nil {
				return err
			}
			all, err := c.Attachments(cmd.Context(), network, node)
			if err != nil {
				return err
			}
			return status.Write(cmd.OutOrStdout(), attachmentsSheet(all), l.format)
		},
	}
	l.flags(cmd)
	cmd.Flags().StringVar(&network, "network", "", "only those of a network, by `name`")
	cmd.Flags().StringVar(&node, "node", "", "only those of a node, by `name`")
	_ = cmd.RegisterFlagCompletionFunc("network", l.networkNames) // fails only for an undefined flag
	return cmd
}

func attachmentsSheet(all []vdn.Attachment) status.Sheet {
	s := status.Sheet{Value: all, Head: []string{"ATTACHMENT", "NETWORK", "NODE", "DEVICE", "ADDRESSES", "PHASE", "OWNER"}}
	for _, a := range all {
		s.Rows = append(s.Rows, []string{a.ID, a.Network, a.Node, a.Device, words(a.Addresses), string(a.Phase), a.Owner})
	}
	return s
}

func newVDNNodesCommand() *cobra.Command {
	var l vdnLook
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "The nodes, by what they enforce, which plan they hold, and what is wrong",
		Long: `Nodes shows who enforces the networks' rates and rights: when each last told of
itself, the revision of the plan that it holds, its uplinks, and why the newest plan
does not hold, if so.`,
		Example: `  fairlead vdn nodes
  fairlead vdn nodes -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.show(cmd, nodesSheet) },
	}
	l.flags(cmd)
	return cmd
}

func nodesSheet(v vdn.View) status.Sheet {
	s := status.Sheet{Value: v.Nodes, Head: []string{"NODE", "ALIVE", "HEARD", "MEANS", "GATEWAY", "UPLINKS", "PLAN", "ERROR"}}
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
		heard := time.Duration(n.Heard * float64(time.Second)).Truncate(time.Second)
		s.Rows = append(s.Rows, []string{
			n.Name, yes(n.Alive), heard.String() + " ago", n.Means, yes(n.Gateway), strings.Join(uplinks, ","),
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

func newVDNPeersCommand() *cobra.Command {
	var l vdnLook
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "The federated domains, their networks, and which of these do not count here",
		Long: `Peers shows the domains that networks are exchanged with, whether they answer, what
they share, and why a network of theirs does not count here, if so.`,
		Example: `  fairlead vdn peers
  fairlead vdn peers -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.show(cmd, vdnPeersSheet) },
	}
	l.flags(cmd)
	return cmd
}

func vdnPeersSheet(v vdn.View) status.Sheet {
	peers := append([]vdn.PeerView{}, v.Peers...) // [] in JSON if there are none
	s := status.Sheet{Value: peers, Head: []string{"PEER", "CONNECTED", "NEXT HOPS", "NETWORK", "PREFIXES", "HOSTS", "WHY NOT"}}
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
