package figures

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Document is where the figures of record stand, from the root of the repository.
const Document = "spec/benchmarks.md"

// The tables stand between a line of their own and the next EndMark; the rest of
// the document is written by hand.
const EndMark = "<!-- end -->"

// Publish prints a table, with when and on what it was taken, and with write
// puts it into the Document after mark.
func Publish(out io.Writer, write bool, mark, table string) error {
	text := describe() + "\n" + table
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("cannot print the table: %w", err)
	}
	if write {
		return rewrite(Document, mark, text)
	}
	return nil
}

// rewrite puts text after a mark of a file.
func rewrite(path, beginMark, text string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the document: %w", err)
	}
	head, rest, found := strings.Cut(string(data), beginMark)
	_, tail, ended := strings.Cut(rest, EndMark)
	if !found || !ended {
		return fmt.Errorf("cannot write %s: the lines %q and %q are not in it", path, beginMark, EndMark)
	}
	if err := os.WriteFile(path, []byte(head+beginMark+"\n\n"+text+"\n"+EndMark+tail), 0o644); err != nil {
		return fmt.Errorf("cannot write the document: %w", err)
	}
	return nil
}

// describe says when and on what the figures were taken.
func describe() string {
	var name unix.Utsname
	kernel := "unknown"
	if unix.Uname(&name) == nil {
		kernel = string(bytes.TrimRight(name.Release[:], "\x00"))
	}
	load, _, _ := strings.Cut(firstLine("/proc/loadavg"), " ")
	return fmt.Sprintf("Taken %s on %d cores (%s), %s of memory, Linux %s, %s; load average at the end %s.\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), Field("/proc/cpuinfo", "model name"),
		gib(Field("/proc/meminfo", "MemTotal")), kernel, runtime.Version(), load)
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// Field gives the value of the first line "name: value" of a file of /proc.
func Field(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// gib writes a number of kibibytes as the kernel does ("24684096 kB") in GiB.
func gib(kb string) string {
	var n float64
	if _, err := fmt.Sscanf(kb, "%f kB", &n); err != nil {
		return kb
	}
	return fmt.Sprintf("%.0f GiB", n/(1<<20))
}
