// Command fairlead is the product in one binary: the daemons and the commands that query
// them. This package only contains flags and wiring, one file per subcommand; everything
// that does not need a command line belongs in the packages above. Demo, benchmarks and
// simulator are in fairlead-lab, which is not installed.
package main

import "github.com/fairlead/fairlead/cmd/internal/cli"

func main() { cli.Main(newRootCommand()) }
