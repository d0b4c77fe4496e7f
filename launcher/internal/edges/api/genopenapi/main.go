// Command genopenapi writes the OpenAPI document of the launcher's control API
// to the file that its argument names.
package main

import (
	"fmt"
	"os"

	"hotseat.dev/hotseat/launcher/internal/edges/api"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "genopenapi:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: genopenapi FILE")
	}
	document, err := api.Document()
	if err != nil {
		return err
	}
	header := "# Made from the Go types by launcher/internal/edges/api/genopenapi; do not edit.\n"
	return os.WriteFile(args[0], append([]byte(header), document...), 0o644) //nolint:gosec // a document for everybody to read
}
