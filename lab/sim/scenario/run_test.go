package scenario

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/experiments"
)

// TestShipped runs every shipped scenario with its first seed.
func TestShipped(t *testing.T) {
	files, err := filepath.Glob("../../../docs/scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario is shipped: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(file, text, in(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			if s.About == "" {
				t.Error("it does not say what it is about")
			}
			outcomes, _, err := experiments.RunAll(context.Background(), []experiments.Experiment{s.Experiment()}, experiments.Options{Seeds: 1, Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			o := outcomes[0]
			for _, table := range o.Tables {
				for _, row := range table.Rows {
					t.Log(table.Name, row.Keys, values(row))
				}
			}
		})
	}
}

func values(row experiments.MeanRow) (all []float64) {
	for _, v := range row.Values {
		if v != nil {
			all = append(all, v.Mean)
		}
	}
	return all
}

// in returns the files of a folder.
func in(dir string) Files {
	return func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) }
}
