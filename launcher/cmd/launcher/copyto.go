package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// copyToCommand is for the init container that gives the launcher to an image
// which has an engine and no launcher; it needs no shell.
func (c *cli) copyToCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "copy-to DIR",
		Hidden: true,
		Short:  "Copy this program into a folder",
		Long:   "Copy this program into the folder DIR, as DIR/launcher. A file of that name is replaced whole.",
		Args:   exactly("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			return copySelf(filepath.Join(args[0], "launcher"))
		},
	}
}

// copySelf copies the running program to a path.
func copySelf(to string) (err error) {
	own, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("cannot read the launcher's own program: %w", err)
	}
	defer own.Close()
	file, err := os.CreateTemp(filepath.Dir(to), ".launcher-")
	if err != nil {
		return fmt.Errorf("cannot copy the launcher to %s: %w", to, err)
	}
	_, err = io.Copy(file, own)
	err = errors.Join(err, file.Chmod(0o755), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), to)
	}
	if err != nil {
		return fmt.Errorf("cannot copy the launcher to %s: %w", to, errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}
