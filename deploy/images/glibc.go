package images

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// NewestGlibc is the newest release of the C library that a program of ours may
// need: that of the oldest systems that images of vLLM are made of.
const NewestGlibc = "2.34"

// NeedsGlibc gives the newest version of the C library's symbols that a program
// needs, such as 2.34; empty where it needs none, as a static program does.
func NeedsGlibc(file string) (string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", fmt.Errorf("cannot read the program %s: %w", file, err)
	}
	defer f.Close()
	if f.Section(".gnu.version_r") == nil {
		return "", nil
	}
	libraries, err := f.DynamicVersionNeeds()
	if err != nil {
		return "", fmt.Errorf("cannot read what %s needs of its libraries: %w", file, err)
	}
	newest := ""
	for _, library := range libraries {
		for _, need := range library.Needs {
			if version, ok := strings.CutPrefix(need.Dep, "GLIBC_"); ok && newer(version, newest) {
				newest = version
			}
		}
	}
	return newest, nil
}

// newer compares versions such as 2.34 and 2.3.2.
func newer(a, b string) bool {
	of, than := strings.Split(a, "."), strings.Split(b, ".")
	for i := range of {
		if i >= len(than) {
			return true
		}
		x, _ := strconv.Atoi(of[i]) // GLIBC_PRIVATE is no version, and older than any
		y, _ := strconv.Atoi(than[i])
		if x != y {
			return x > y
		}
	}
	return false
}

func (p Product) checkGlibc(folder string) error {
	for _, program := range p.Programs {
		needs, err := NeedsGlibc(filepath.Join(folder, program))
		if err != nil {
			return err
		}
		if newer(needs, NewestGlibc) {
			return fmt.Errorf("the program %s needs glibc %s, and images of vLLM may have %s: build it on an older system, such as Debian 12", program, needs, NewestGlibc)
		}
	}
	return nil
}
