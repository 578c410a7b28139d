package clock

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTimeNamespace reads the clock in processes with another time namespace: days ahead,
// and as if the machine had just booted.
func TestTimeNamespace(t *testing.T) {
	if os.Getenv("FAIRLEAD_TEST_CLOCK") != "" {
		fmt.Printf("%d\n%d\n", Now(), Zero().UnixNano())
		return
	}
	for _, by := range []time.Duration{0, 100 * 24 * time.Hour, -(Now() - time.Second).Truncate(time.Second)} {
		cmd := exec.Command("unshare", "--time", "--fork", "--monotonic", strconv.Itoa(int(by/time.Second)), os.Args[0], "-test.run=^TestTimeNamespace$")
		cmd.Env = append(os.Environ(), "FAIRLEAD_TEST_CLOCK=1")
		was, zero := Now(), Zero()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		is := Now()
		words := strings.Fields(string(out))
		there, _ := strconv.ParseInt(words[0], 10, 64)
		if got := time.Duration(there); got < was || got > is {
			t.Errorf("moved by %v it reads %v, want %v to %v", by, got, was, is)
		}
		nano, _ := strconv.ParseInt(words[1], 10, 64)
		if off := time.Unix(0, nano).Sub(zero); off.Abs() > time.Second {
			t.Errorf("moved by %v the kernel's clock was 0 at %v, off by %v", by, time.Unix(0, nano), off)
		}
	}
}
