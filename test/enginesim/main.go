// Enginesim stands in for `vllm serve` 0.30 where a test must be fast, or where
// something must go wrong on purpose. `enginesim faults` lists what can.
package main

import (
	"fmt"
	"os"

	"hotseat.dev/hotseat/test/enginesim/internal/stamp"
	"hotseat.dev/hotseat/test/enginesim/internal/tree"
)

// The stamp is written while packages are initialised, long before main.
var _ = stamp.Written

func main() {
	tree.Child()
	os.Exit(run(os.Args[1:]))
}

const usageText = `usage: vllm [-h] [-v]
            {chat,complete,serve,launch,bench,collect-env,run-batch} ...`

// run is the command line; it returns the exit code.
func run(args []string) int {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	switch args[0] {
	case "serve":
		return serve(args[1:])
	case "faults":
		faults(os.Stdout)
		return 0
	case "--version", "-v":
		fmt.Println(tree.Version)
		return 0
	case "--help", "-h":
		fmt.Printf("%s\n\nThis is a stand-in for vLLM: `enginesim serve MODEL`, and `enginesim faults` for what it can do beside.\n", usageText)
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s\nvllm: error: argument subparser: invalid choice: '%s' (choose from 'chat', 'complete', 'serve', 'launch', 'bench', 'collect-env', 'run-batch')\n", usageText, args[0])
	return 2
}
