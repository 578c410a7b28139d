// Command refuse runs a command on a kernel that rejects chosen features; see
// package refuse.
package main

import (
	"os"

	"github.com/fairlead/fairlead/lab/testkit/refuse"
)

func main() {
	refuse.Init()
	os.Exit(refuse.Main(os.Args[1:]))
}
