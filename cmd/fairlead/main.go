// Command fairlead is the whole of Fairlead in one binary. What lives here is
// flags and wiring, one file a subcommand; whatever can be said without a
// command line lives in the packages above.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal means at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, newRootCommand(), os.Args[1:])
	stop()
	os.Exit(code)
}
