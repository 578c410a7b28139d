package simulator

import (
	"context"
	"io"
	"os/exec"
	"testing"
)

// TestMeasure also checks that ns-2 counts the same, if it is installed.
func TestMeasure(t *testing.T) {
	r, err := Measure(context.Background(), Options{Rounds: 1, Seconds: 5, Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	_, err = exec.LookPath("ns")
	if len(r.Rows) != 5 {
		t.Fatalf("%d rows, want two for each number of servers and one for setting up", len(r.Rows))
	}
	for _, row := range r.Rows[:4] {
		if row.Measured <= 0 || (row.Goal != nil) != (err == nil) {
			t.Errorf("%+v with ns-2: %v", row, err)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Rounds: 0, Seconds: 1}, {Rounds: 1, Seconds: 0}} {
		if o.Validate() == nil {
			t.Errorf("%+v passes", o)
		}
	}
}
