package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/lab/sim/lvs"
	"github.com/fairlead/fairlead/lab/sim/scenario"
)

// isScenario reports whether an argument is the name of a file instead of a built-in
// scenario.
func isScenario(arg string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(arg))
}

// scenarioIn reads the scenario of a file.
func scenarioIn(file string) (*scenario.Scenario, error) {
	text, err := limit.ReadFile(file, limit.Text)
	if err != nil {
		return nil, err
	}
	return scenario.Parse(file, text, filesNextTo(file))
}

// filesNextTo reads the files to which a scenario refers.
func filesNextTo(file string) scenario.Files {
	return func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(file), name)
		}
		return limit.ReadFile(name, limit.Text)
	}
}

// take adds a scenario to the run.
func (s *simulated) take(c *scenario.Scenario) error {
	if slices.ContainsFunc(s.scenarios, func(o *scenario.Scenario) bool { return o.Name == c.Name }) {
		return fmt.Errorf("two scenarios are named %s: rename one", c.Name)
	}
	s.scenarios = append(s.scenarios, c)
	return nil
}

// settle applies the settings in the scenario files unless flags override them. All
// scenarios run with the highest number of seeds that any of them requests.
func (s *simulated) settle(cmd *cobra.Command, o *simOptions) {
	seeds, clock := cmd.Flags().Changed("seeds"), cmd.Flags().Changed("clock")
	for _, c := range s.scenarios {
		if !seeds {
			o.Seeds = max(o.Seeds, c.Seeds)
		}
		if clock {
			c.Clock = scenario.Scale
			if o.Clock == lvs.Compat {
				c.Clock = scenario.Compat
			}
		}
		s.experiments = append(s.experiments, c.Experiment())
	}
}
