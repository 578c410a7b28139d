package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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

// ConfigError is what is wrong with a flag in a file.
type ConfigError struct {
	Line int
	Flag string
	Err  error
}

// ConfigErrors are all errors of a file.
type ConfigErrors []ConfigError

func (e ConfigErrors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = fmt.Sprintf("line %d: %s: %v", one.Line, one.Flag, one.Err)
	}
	return strings.Join(texts, "\n")
}

// readConfig is ReadConfig. Each error names the file and the line.
func readConfig(flags *pflag.FlagSet, path string) error {
	_, err := ReadConfig(flags, path)
	var wrong ConfigErrors
	if !errors.As(err, &wrong) {
		return err
	}
	var errs []error
	for _, w := range wrong {
		if w.Flag == "" {
			errs = append(errs, fmt.Errorf("--config: %s:%d: %w", path, w.Line, w.Err))
		} else {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", path, w.Line, w.Flag, w.Err))
		}
	}
	return errors.Join(errs...)
}

// ReadConfig sets the flags that a file names and the command line does not, and returns
// their lines. What is wrong with the text is ConfigErrors.
func ReadConfig(flags *pflag.FlagSet, path string) (lines map[string]int, err error) {
	text, err := limit.ReadFile(path, limit.Text)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	docs, bad := yamltree.Parse(path, text)
	if bad != nil {
		return nil, ConfigErrors{{Line: bad.Line, Err: errors.New(bad.Message)}}
	}
	var wrong ConfigErrors
	lines = map[string]int{}
	for _, root := range docs {
		if root.Kind != yaml.MappingNode {
			return nil, ConfigErrors{{Line: root.Line, Err: errors.New("not a mapping of flags to values")}}
		}
		for i := 0; i+1 < len(root.Content); i += 2 {
			key, value := root.Content[i], root.Content[i+1]
			err := errors.New("is set twice")
			if lines[key.Value] == 0 {
				err = setFlag(flags, key.Value, value)
			}
			lines[key.Value] = key.Line
			if err != nil {
				wrong = append(wrong, ConfigError{key.Line, key.Value, err})
			}
		}
	}
	if len(wrong) > 0 {
		return lines, wrong
	}
	return lines, nil
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
