package lvs

import (
	"context"
	"fmt"
	"os"
	"testing"
)

func TestTry(t *testing.T) {
	only := os.Getenv("FIG")
	var fs []Figure
	for _, f := range Figures() {
		if only == "" || only == f.Name {
			fs = append(fs, f)
		}
	}
	last := -1
	r, err := Run(context.Background(), fs, Options{Clock: Compat, Seeds: 1, Workers: 2, Progress: func(d, tot int) {
		if d*20/tot != last {
			last = d * 20 / tot
			fmt.Fprintln(os.Stderr, d, tot)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Figures {
		fmt.Println(o.Figure, o.Verdict, o.Title)
		for _, f := range o.Findings {
			v := "-"
			if f.Found != nil {
				v = number(f.Found.Mean)
			}
			fmt.Printf("   %-16s %-60s found %s wanted %s | %s\n", f.Verdict, f.Says, v, f.Wanted, f.Reason)
		}
		if only != "" {
			for _, c := range o.Curves {
				fmt.Println(c.Name)
				for _, p := range c.Points {
					fmt.Printf("  %g:%.0f", p.X, p.Mean)
				}
				fmt.Println()
			}
		}
	}
}
