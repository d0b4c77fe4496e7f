// Make writes the images of hotseat as OCI layouts; `make images` runs it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/deploy/images"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var from, to, version string
	var architectures []string
	c := &cobra.Command{
		Use: "make", Short: "Write the images of hotseat as OCI layouts", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return write(c.OutOrStdout(), from, to, version, architectures)
		},
	}
	f := c.Flags()
	f.StringVar(&from, "from", "bin", "folder with a folder of programs for each architecture")
	f.StringVar(&to, "to", "bin/images", "folder for the layouts, one of each image")
	f.StringVar(&version, "version", "", "version of hotseat, which is the images' tag")
	f.StringSliceVar(&architectures, "arch", []string{"amd64"}, "architectures, as GOARCH has them")
	return c
}

// write makes each image for the architectures that all its programs are built
// for, and says what it made.
func write(out io.Writer, from, to, version string, architectures []string) error {
	if version == "" {
		return errors.New("--version is missing: say which version of hotseat the images are")
	}
	for _, p := range images.Products {
		var there []string
		for _, a := range architectures {
			if missing := p.Missing(filepath.Join(from, a)); missing == "" {
				there = append(there, a)
			} else if _, err := fmt.Fprintf(out, "%s: not for %s, for which there is no %s\n", p.Name, a, missing); err != nil {
				return err
			}
		}
		if len(there) == 0 {
			return fmt.Errorf("image %s can be made for none of %s: its programs %s are not all in %s", p.Name, strings.Join(architectures, ", "), strings.Join(p.Programs, ", "), from)
		}
		digest, err := p.Write(from, filepath.Join(to, p.Name), version, there)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s:%s  %s  %s  (%s)\n", p.Name, version, digest, filepath.Join(to, p.Name), strings.Join(there, ", ")); err != nil {
			return err
		}
	}
	return nil
}
