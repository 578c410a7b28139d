package store

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/fairlead/fairlead/vdn/store/kv"
)

// copiedAtOnce is how many values Copy writes per batch.
const copiedAtOnce = 100

// Copy copies everything from one backend to another, which must be empty and unused
// meanwhile. It returns the number of values.
func Copy(ctx context.Context, from, to kv.Backend) (values int, err error) {
	snapshot, err := from.Load(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := remember(snapshot); err != nil {
		return 0, fmt.Errorf("failed to read the source: %w", err)
	}
	revision, err := to.Revision(ctx)
	if err != nil {
		return 0, err
	}
	if revision != 0 {
		return 0, fmt.Errorf("the target already contains a state of revision %d: use another prefix or folder", revision)
	}
	for rest := snapshot.Puts; len(rest) > 0; revision++ {
		n := min(len(rest), copiedAtOnce)
		if err := to.Commit(ctx, kv.Batch{Revision: revision + 1, Writer: rand.Text(), Puts: rest[:n]}); err != nil {
			return values, fmt.Errorf("after %d of %d values: %w: start again, with another prefix or folder", values, len(snapshot.Puts), err)
		}
		values, rest = values+n, rest[n:]
	}
	return values, nil
}
