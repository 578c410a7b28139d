package rules_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/bench/rules"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestSmall holds a few Services in each way; connections show that they are
// served.
func TestSmall(t *testing.T) {
	o := rules.DefaultOptions()
	o.Services, o.Adds, o.Connects, o.Progress = []int{1, 300}, 2, 5, os.Stderr
	report, err := rules.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, r := range report.Rows {
		got[r.Case] = r.Measured > 0
	}
	for _, w := range rules.Ways {
		for _, what := range []string{"all written", "one more", "connect to the first", "connect to the middle", "connect to the last"} {
			if name := fmt.Sprintf("%s, 300 Services: %s", w, what); !got[name] {
				t.Errorf("no %q", name)
			}
		}
	}
	testkit.NoLeftovers(t)
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for flag, spoil := range map[string]func(*rules.Options){
		"--services": func(o *rules.Options) { o.Services = []int{5, 1} },
		"--only":     func(o *rules.Options) { o.Ways = []string{"ipvs"} },
		"--limit":    func(o *rules.Options) { o.Limit = time.Millisecond },
	} {
		o := rules.DefaultOptions()
		spoil(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
