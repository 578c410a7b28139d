// Command fairlead is the product in one binary: the daemons and the commands that query
// them. This package only contains flags, one file per subcommand. What runs daemons and
// asks them is in the folders in internal; everything else belongs in the packages above. Demo, benchmarks and
// simulator are in fairlead-lab, which is not installed.
package main

import "github.com/fairlead/fairlead/cmd/internal/cli"

func main() { cli.Main(newRootCommand()) }
