// Command azserve is batched tree search, self-play and training from the command line. A program
// with environments of its own has the same main, after its calls of envs.Register.
package main

import (
	"os"

	"github.com/azserve/azserve/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
