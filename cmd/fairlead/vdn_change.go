package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/file"
)

func newVDNApplyCommand() *cobra.Command {
	var config client.Config
	var files []string
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make and change networks and peers as a file says",
		Long: `Apply reads networks and peers from files of YAML or JSON, and makes or changes each.
What else there is stays. A file with a fault is refused with its line before
anything of it is changed; what the controller refuses is told with its line, and
the rest is done.`,
		Example: `  fairlead vdn apply -f networks.yaml
  fairlead vdn apply -f networks.yaml -f peers.yaml --controller unix:///run/fairlead/vdn/api.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := client.New(config)
			if err != nil {
				return err
			}
			items, err := readItems(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return applyItems(cmd.Context(), cmd.OutOrStdout(), c, items)
		},
	}
	vdnClientFlags(cmd, &config)
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "`file` to read; - for standard input")
	_ = cmd.MarkFlagRequired("file") // fails only for an undefined flag
	return cmd
}

// readItems reads all files, and reports all errors in them.
func readItems(files []string, stdin io.Reader) (items []file.Item, err error) {
	var faults []error
	for _, name := range files {
		read := func() ([]byte, error) { return limit.ReadFile(name, limit.Text) }
		if name == "-" {
			name, read = "standard input", func() ([]byte, error) { return limit.ReadAll(stdin, "standard input", limit.Text) }
		}
		text, err := read()
		if err != nil {
			faults = append(faults, err)
			continue
		}
		found, err := file.Read(name, text)
		items = append(items, found...)
		faults = append(faults, err)
	}
	return items, errors.Join(faults...)
}

func applyItems(ctx context.Context, out io.Writer, c *client.Client, items []file.Item) error {
	var faults []error
	for _, i := range items {
		var err error
		if i.Network != nil {
			err = c.PutNetwork(ctx, *i.Network)
		} else {
			err = c.PutPeer(ctx, *i.Peer)
		}
		if client.IsUnavailable(err) {
			return errors.Join(append(faults, err)...)
		}
		if err != nil {
			faults = append(faults, i.Where(err))
			continue
		}
		fmt.Fprintln(out, i.Object()+": applied")
	}
	return errors.Join(faults...)
}

func newVDNDeleteCommand() *cobra.Command {
	var l vdnLook
	things := map[string]func(*client.Client, context.Context, string) error{
		"network": (*client.Client).DeleteNetwork, "attachment": (*client.Client).Detach,
		"node": (*client.Client).DeleteNode, "peer": (*client.Client).DeletePeer,
	}
	cmd := &cobra.Command{
		Use:   "delete {network|attachment|node|peer} NAME",
		Short: "Take a network, an attachment, a node or a peer away",
		Long: `Delete takes one thing away. Networks and nodes that have attachments are refused;
what is not there is no error. An attachment's addresses are free at once: delete one
only when its pod is gone for good.`,
		Example: `  fairlead vdn delete network science
  fairlead vdn delete attachment 0a1b2c.net1
  fairlead vdn delete node node-7
  fairlead vdn delete peer busan.example`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(2)(cmd, args); err != nil {
				return err
			}
			if things[args[0]] == nil {
				return fmt.Errorf("%q cannot be deleted: name a network, attachment, node or peer", args[0])
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 && args[0] == "network" {
				return l.networkNames(cmd, nil, prefix)
			}
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"network", "attachment", "node", "peer"}, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := client.New(l.config)
			if err != nil {
				return err
			}
			return things[args[0]](c, cmd.Context(), args[1])
		},
	}
	vdnClientFlags(cmd, &l.config)
	return cmd
}
