package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/source"
)

// numbered is a source that publishes what it receives, until it is closed.
type numbered chan byte

var errGaveUp = errors.New("gave up")

func (c numbered) Run(ctx context.Context, publish func(source.Snapshot)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n, ok := <-c:
			if !ok {
				return errGaveUp
			}
			publish(source.Snapshot{Draining: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n})}})
		}
	}
}

// TestASourceThatBegunAhead checks that the latest snapshot is published, then all
// following ones, and that the source ends with its caller or by itself.
func TestASourceThatBegunAhead(t *testing.T) {
	for _, gives := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			from, got := make(numbered), []byte(nil)
			a := begin(from, true)
			from <- 1
			from <- 2
			synctest.Wait()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				ended <- a.Run(ctx, func(s source.Snapshot) { got = append(got, s.Draining[0].As4()[3]) })
			}()
			synctest.Wait()
			from <- 3
			synctest.Wait()
			if !slices.Equal(got, []byte{2, 3}) {
				t.Errorf("received %d, want 2, 3", got)
			}
			if gives {
				close(from)
			} else {
				stop()
			}
			if err := <-ended; errors.Is(err, errGaveUp) != gives || !gives && err != nil {
				t.Errorf("ended with %v", err)
			}
			stop()
		})
	}
}

// TestASourceThatNobodyRuns checks that close ends a source that was never run.
func TestASourceThatNobodyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := begin(make(numbered), false).close(); err != nil {
			t.Error(err)
		}
	})
}
