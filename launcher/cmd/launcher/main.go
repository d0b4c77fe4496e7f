// Launcher is the daemon that makes models take turns on the GPUs of one
// machine, and the command line client of its API.
package main

import (
	"context"
	"os"

	"hotseat.dev/hotseat/launcher/internal/machine/initd"
)

func main() {
	os.Exit((&cli{in: os.Stdin, out: os.Stdout, err: os.Stderr, init: initd.Parent()}).run(context.Background(), os.Args[1:]))
}
