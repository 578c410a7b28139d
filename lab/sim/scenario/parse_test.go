package scenario

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead/fairlead/internal/yamltree"
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

var update = flag.Bool("update", false, "write what is refused into the files of testdata")

// TestRefusals: each YAML file of an archive in testdata is an invalid scenario, and the
// file "refused" contains all error messages.
func TestRefusals(t *testing.T) {
	const name = "testdata/refused.txtar"
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	last := len(archive.Files) - 1
	for _, f := range archive.Files[:last] {
		if path.Ext(f.Name) != ".yaml" { // files that scenarios refer to
			continue
		}
		_, err := Parse(f.Name, f.Data, func(name string) ([]byte, error) {
			for _, other := range archive.Files {
				if other.Name == name {
					return other.Data, nil
				}
			}
			return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
		})
		var problems reading.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s is not refused: %v", f.Name, err)
			continue
		}
		fmt.Fprintln(&said, problems)
	}
	if *update {
		archive.Files[last].Data = []byte(said.String())
		if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := said.String(), string(archive.Files[last].Data); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzParse checks that no text causes a panic, and that each problem has an existing
// line number.
func FuzzParse(f *testing.F) {
	shipped, err := filepath.Glob("../../../docs/scenarios/*.yaml")
	if err != nil || len(shipped) == 0 {
		f.Fatalf("no scenario is shipped: %v", err)
	}
	for _, name := range shipped {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	archive, err := txtar.ParseFile("testdata/refused.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range archive.Files {
		f.Add(file.Data)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		s, err := Parse("x.yaml", text, nil)
		if err == nil && (len(s.Load) == 0 || s.Duration <= 0) {
			t.Errorf("%+v passes", s)
		}
		var problems reading.Problems
		if err != nil && !errors.As(err, &problems) {
			t.Fatalf("%v has no line", err)
		}
		for _, p := range problems {
			if p.Line < 1 || p.Line > yamltree.Lines(text) || p.Message == "" {
				t.Errorf("%+v: want a line from 1 to %d and a message", p, yamltree.Lines(text))
			}
		}
	})
}

// Units are converted correctly.
func TestQuantities(t *testing.T) {
	for _, c := range []struct {
		text  string
		units []reading.Unit
		want  float64
		bad   bool
	}{
		{text: "1Gbit", units: reading.Bits, want: 1e9},
		{text: "1.5ms", units: reading.Seconds, want: 1.5e-3},
		{text: "0", units: reading.Seconds},
		{text: "-3s", units: reading.Seconds, want: -3},
		{text: "2m", units: reading.Seconds, want: 120},
		{text: "0.5%", units: reading.Share, want: 0.005},
		{text: "20_000", want: 20000},
		{text: "1e4", want: 1e4},
		{text: "5", units: reading.Seconds, bad: true},
		{text: "5 parsecs", units: reading.Seconds, bad: true},
		{text: "NaN", bad: true},
		{text: "inf", bad: true},
		{text: "", bad: true},
	} {
		got, ok := reading.Quantity(c.text, c.units)
		if ok == c.bad || !c.bad && got != c.want {
			t.Errorf("%q: got %v, %v, want %v", c.text, got, ok, c.want)
		}
	}
}

// TestPage checks that each scenario shown on the documentation page is valid, with the
// trace shown there, and can be run.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	fences := strings.Split(string(text), "```yaml\n")
	if len(fences) < 2 {
		t.Fatal("the page shows no scenario")
	}
	_, shown, _ := strings.Cut(string(text), "```text\ntime,")
	rows, _, _ := strings.Cut(shown, "```")
	for _, fence := range fences[1:] {
		shown, _, _ := strings.Cut(fence, "```")
		s, err := Parse("docs/scenarios.md", []byte(shown), func(string) ([]byte, error) { return []byte("time," + rows), nil })
		if err != nil {
			t.Error(err)
			continue
		}
		o, err := s.run(context.Background(), 1, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		if o.total.asked == 0 || o.total.answered == 0 {
			t.Errorf("%s: %+v, want answers", s.About, o.total)
		}
	}
}
