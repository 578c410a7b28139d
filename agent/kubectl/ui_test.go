package kubectl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
)

// TestPipe talks to a command as to a server, ends it, and receives its error.
func TestPipe(t *testing.T) {
	ended := make(chan error, 1)
	c := pipe(t.Context(), func(ctx context.Context, o remotecommand.StreamOptions) error {
		go func() {
			line, _ := bufio.NewReader(o.Stdin).ReadString('\n')
			fmt.Fprint(o.Stdout, strings.ToUpper(line))
		}()
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	})
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "HELLO\n" {
		t.Errorf("%q, %v", line, err)
	}
	if c.Close() != nil || !errors.Is(<-ended, context.Canceled) {
		t.Error("the command continues")
	}
	c = pipe(t.Context(), func(_ context.Context, o remotecommand.StreamOptions) error {
		fmt.Fprintln(o.Stderr, "fairlead: unknown command connect")
		return errors.New("exit code 1")
	})
	if _, err := c.Read(make([]byte, 1)); err == nil || err.Error() != "fairlead: unknown command connect" {
		t.Errorf("error %v", err)
	}
}
