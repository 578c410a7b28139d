package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/check"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/agent"
	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/source/manifest"
)

func newCheckCommand() *cobra.Command {
	c := checkCommand{format: check.Text}
	cmd := &cobra.Command{
		Use:   "check FILE|DIR...",
		Short: "Validate manifests offline",
		Long: `Read manifests as an agent would, and list all problems, one per line:

  FILE:LINE: SEVERITY: OBJECT: FIELD: MESSAGE

An error is what an agent would reject or ignore, a warning what it accepts but
was probably not meant. All files and folders together form one configuration,
as if they were in one --manifest-dir; "-" reads standard input. No agent, no
cluster, no kernel and no privileges are needed.

With --kubernetes, the manifests are for a cluster: objects that are not for
Fairlead are ignored, and Services get addresses and endpoints there. With
--config, an agent's configuration file is checked, too, and its node labels,
data plane and source apply to the manifests.

Exit codes: 0 no error, 1 errors (with --strict also warnings), 2 usage.`,
		Example: `  fairlead check /etc/fairlead/services
  fairlead check --dataplane ipvs --strict web.yaml dns.yaml
  fairlead check --config lb1.yaml --config lb2.yaml services
  fairlead check --kubernetes -o github rendered/production.yaml`,
		Args:    cobra.MinimumNArgs(1),
		GroupID: groupRun,
		RunE:    c.run,
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.dataPlanes, "dataplane", []string{"xdp"}, "data plane that must support the Services: xdp or ipvs; repeatable")
	f.StringArrayVar(&c.configs, "config", nil, "`FILE` with the configuration of an agent (fairlead agent --config); repeatable")
	f.BoolVar(&c.kubernetes, "kubernetes", false, "the manifests are for a cluster")
	f.BoolVar(&c.strict, "strict", false, "fail on warnings, too")
	f.VarP(&c.format, "output", "o", "text, json or github (annotations of GitHub Actions)")
	for flag, values := range map[string][]string{"dataplane": checkedPlanes, "output": cli.Texts(check.Formats)} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

type checkCommand struct {
	dataPlanes, configs []string
	kubernetes, strict  bool
	format              check.Format
}

// checkedPlanes lists the data planes that can be checked without a kernel.
var checkedPlanes = []string{"xdp", "ipvs"}

func (c *checkCommand) run(cmd *cobra.Command, paths []string) error {
	for _, name := range c.dataPlanes {
		if !slices.Contains(checkedPlanes, name) {
			return config.Invalid(fmt.Errorf("--dataplane: %q is not one of %s", name, strings.Join(checkedPlanes, ", ")))
		}
	}
	conf := check.Config{Reading: manifest.Reading{Paths: paths, Cluster: c.kubernetes}, DataPlanes: c.dataPlanes, Peers: agent.PeerProblems}
	found, err := c.agents(&conf)
	if err != nil {
		return config.Invalid(err)
	}
	if slices.Contains(paths, manifest.Stdin) {
		if conf.Stdin, err = limit.ReadAll(cmd.InOrStdin(), "stdin", limit.Text); err != nil {
			return config.Invalid(err)
		}
	}
	more, err := check.Run(conf)
	if err != nil {
		return config.Invalid(err)
	}
	found = append(found, more...)
	if err := check.Print(cmd.OutOrStdout(), found, c.format); err != nil {
		return err
	}
	return check.Verdict(found, c.strict)
}

// agents checks the agents' configuration files, and adds them as nodes.
func (c *checkCommand) agents(conf *check.Config) (found []check.Finding, err error) {
	for _, path := range c.configs {
		a, err := readAgentConfig(path)
		var wrong cli.ConfigErrors
		switch {
		case errors.As(err, &wrong):
			for _, w := range wrong {
				found = append(found, check.Finding{Severity: check.Error, Rule: check.RuleConfig,
					Problem: problem.Problem{Where: fmt.Sprintf("%s:%d", path, w.Line), Field: w.Flag, Message: w.Err.Error()}})
			}
		case err != nil:
			return nil, err
		}
		conf.Cluster = conf.Cluster || a.Kubernetes
		n := check.Node{Name: path, Labels: a.NodeLabels}
		if slices.Contains(checkedPlanes, a.DataPlane) {
			n.DataPlane = a.DataPlane
		}
		if !a.Kubernetes { // a Node has its labels in the cluster
			conf.Nodes = append(conf.Nodes, n)
		}
	}
	return found, nil
}

// readAgentConfig reads and validates the configuration file of an agent, except what
// depends on its machine.
func readAgentConfig(path string) (config.Agent, error) {
	a := config.DefaultAgent()
	cmd := &cobra.Command{}
	agentFlags(cmd, &a)
	lines, err := cli.ReadConfig(cmd.Flags(), path)
	var wrong cli.ConfigErrors
	if err != nil && !errors.As(err, &wrong) {
		return a, err
	}
	for _, f := range config.FlagErrors(a.Validate()) {
		wrong = append(wrong, cli.ConfigError{Line: max(lines[f.Flag], 1), Flag: f.Flag, Err: errors.New(f.Message)})
	}
	if len(wrong) > 0 {
		return a, wrong
	}
	return a, nil
}
