// Copier puts programs of its image into a folder, as the init container of a
// launcher Pod does: /copier /launcher /modelfetch /hotseat. It needs no library, and so
// runs in an image that has none, where the launcher itself would not.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	last := len(os.Args) - 1
	if last < 2 {
		fmt.Fprintln(os.Stderr, "copier: give programs and a folder: copier PROGRAM... FOLDER")
		os.Exit(2)
	}
	for _, program := range os.Args[1:last] {
		if err := copyTo(program, os.Args[last]); err != nil {
			fmt.Fprintln(os.Stderr, "copier:", err)
			os.Exit(1)
		}
	}
}

// copyTo copies a program into a folder. A file of that name is replaced whole.
func copyTo(program, folder string) (err error) {
	to := filepath.Join(folder, filepath.Base(program))
	from, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("cannot copy %s to %s: %w", program, to, err)
	}
	defer from.Close()
	file, err := os.CreateTemp(folder, "."+filepath.Base(program)+"-")
	if err != nil {
		return fmt.Errorf("cannot copy %s to %s: %w", program, to, err)
	}
	_, err = io.Copy(file, from)
	err = errors.Join(err, file.Chmod(0o755), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), to)
	}
	if err != nil {
		return fmt.Errorf("cannot copy %s to %s: %w", program, to, errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}
