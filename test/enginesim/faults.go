package main

import (
	"fmt"
	"io"

	"hotseat.dev/hotseat/test/enginesim/internal/simopts"
)

// faults documents the stand-in's own options.
func faults(w io.Writer) {
	fmt.Fprintln(w, `Options of the stand-in beside vLLM's, each a flag and a variable; the flag wins.
CRASH is [api|core|worker:]exit:N or [api|core|worker:]signal:NAME, then @DURATION if not at once.
TIMES is a number, for the first so many times, or always. BYTES may end in KiB, MiB or GiB.`)
	for _, o := range simopts.Options {
		fmt.Fprintf(w, "\n  %s=%s  (%s)\n      %s\n", o.Flag(), o.Value, o.Env(), o.Doc)
	}
}
