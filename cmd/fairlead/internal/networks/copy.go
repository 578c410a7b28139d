package networks

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/vdn/store"
	"github.com/fairlead/fairlead/vdn/store/etcd"
	"github.com/fairlead/fairlead/vdn/store/file"
)

// CopyStore copies the state of a controller from its directory to etcd.
func CopyStore(ctx context.Context, out io.Writer, r *config.ResolvedVDN) error {
	from, err := file.Open(r.Data)
	if err != nil {
		return err
	}
	to, err := etcd.Open(ctx, *r.Store)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	n, err := store.Copy(ctx, from, to)
	if err == nil {
		fmt.Fprintf(out, "copied %d values of %s to etcd prefix %s\n", n, r.Data, r.Store.Prefix)
	}
	return errors.Join(err, from.Close(), to.Close())
}
