package scale

import (
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestScale changes the number of load balancers three times.
func TestScale(t *testing.T) {
	if _, err := Prepared(); err != nil {
		t.Skip(err)
	}
	o := DefaultOptions()
	o.Binary, o.Changes, o.Most, o.Progress = filepath.Join(t.TempDir(), "fairlead"), 3, 2, t.Output()
	if err := testkit.Build(o.Binary); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 || r.Rows[0].Runs != 2 || r.Rows[1].Runs != 1 || r.Rows[0].Min < 100 {
		t.Errorf("%+v", r.Rows)
	}
	testkit.NoLeftovers(t)
}
