package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/suggest"
	"github.com/fairlead/fairlead/internal/yamltree"
)

// ConfigFile adds --config to a daemon's command: a YAML file that sets its flags by name.
// Flags on the command line override the file.
func ConfigFile(cmd *cobra.Command) {
	var path string
	cmd.Flags().StringVar(&path, "config", "", "YAML `FILE` with values of these flags by name, such as \"peer: [10.0.0.109]\"; flags override it")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml") // fails only for a flag that does not exist
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if path != "" {
			if err := readConfig(cmd.Flags(), path); err != nil {
				return config.Invalid(err)
			}
		}
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
}

// readConfig sets the flags that a file names and the command line does not. It returns
// all errors, each with the line.
func readConfig(flags *pflag.FlagSet, path string) error {
	text, err := limit.ReadFile(path, limit.Text)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	docs, bad := yamltree.Parse(path, text)
	if bad != nil {
		return fmt.Errorf("--config: %s:%d: %s", path, bad.Line, bad.Message)
	}
	var errs []error
	seen := map[string]bool{}
	for _, root := range docs {
		if root.Kind != yaml.MappingNode {
			return fmt.Errorf("--config: %s:%d: not a mapping of flags to values", path, root.Line)
		}
		for i := 0; i+1 < len(root.Content); i += 2 {
			key, value := root.Content[i], root.Content[i+1]
			err := errors.New("is set twice")
			if !seen[key.Value] {
				err = setFlag(flags, key.Value, value)
			}
			seen[key.Value] = true
			if err != nil {
				errs = append(errs, fmt.Errorf("%s:%d: %s: %w", path, key.Line, key.Value, err))
			}
		}
	}
	return errors.Join(errs...)
}

func setFlag(flags *pflag.FlagSet, name string, value *yaml.Node) error {
	f := flags.Lookup(name)
	if f == nil || name == "config" || name == "help" {
		return fmt.Errorf("unknown flag%s", suggest.DidYouMean(name, flagNames(flags)))
	}
	text, err := scalars(value)
	if err != nil {
		return err
	}
	if f.Changed {
		return nil // the command line overrides
	}
	if list, is := f.Value.(pflag.SliceValue); is {
		if err := list.Replace(text); err != nil {
			return err
		}
		f.Changed = true
		return nil
	}
	if value.Kind == yaml.SequenceNode {
		return errors.New("has one value, not a list")
	}
	for _, t := range text {
		if err := flags.Set(name, t); err != nil {
			return err
		}
	}
	return nil
}

// scalars returns the texts of a value: a scalar, a list of them, or "key=value" of a
// mapping.
func scalars(n *yaml.Node) (all []string, err error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return []string{n.Value}, nil
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return nil, errors.New("has an item that is not a single value")
			}
			all = append(all, c.Value)
		}
		return all, nil
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i+1].Kind != yaml.ScalarNode {
				return nil, errors.New("has an item that is not a single value")
			}
			all = append(all, n.Content[i].Value+"="+n.Content[i+1].Value)
		}
		return all, nil
	}
	return nil, errors.New("is neither a value nor a list")
}

func flagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return slices.DeleteFunc(names, func(n string) bool { return n == "config" || n == "help" })
}
