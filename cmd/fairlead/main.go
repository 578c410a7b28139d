// Command fairlead is the product in one binary: the daemons and the commands
// that query them. What lives here is flags and wiring, one file a subcommand;
// whatever can be said without a command line lives in the packages above.
// Demo, benchmarks and simulator are in fairlead-lab, which is not installed.
package main

import "github.com/fairlead/fairlead/cmd/internal/cli"

func main() { cli.Main(newRootCommand()) }
