// Program report prints what the tests of a run did, from the reports that test/ci/gotest.sh
// had written to a folder: each test that failed and then passed, with its first failure,
// and the twenty slowest tests.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// slowest is how many of the slowest tests are printed.
const slowest = 20

// event is a line that `go test -json` writes.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// outcome is what came of a test, its subtests included.
type outcome struct {
	pkg, test string
	elapsed   float64 // of the longest attempt
	output    strings.Builder
	failure   string // output of the first attempt that failed
	failed    bool   // in some attempt
	passed    bool   // in the last attempt
}

// reports gathers the outcomes of a run.
type reports map[[2]string]*outcome

// read takes in one report.
func (r reports) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("cannot read %q: %w", lines.Text(), err)
		}
		if e.Test != "" {
			r.add(e)
		}
	}
	return lines.Err()
}

func (r reports) add(e event) {
	test, sub, _ := strings.Cut(e.Test, "/")
	key := [2]string{e.Package, test}
	o := r[key]
	if o == nil {
		o = &outcome{pkg: e.Package, test: test}
		r[key] = o
	}
	o.output.WriteString(e.Output)
	if sub != "" {
		return
	}
	switch e.Action {
	case "run":
		o.output.Reset()
	case "pass", "skip":
		o.passed, o.elapsed = true, max(o.elapsed, e.Elapsed)
	case "fail":
		if !o.failed {
			o.failure = o.output.String()
		}
		o.failed, o.passed, o.elapsed = true, false, max(o.elapsed, e.Elapsed)
	}
}

// write prints the tests that failed once, then the slowest ones.
func (r reports) write(to io.Writer) {
	all := make([]*outcome, 0, len(r))
	for _, o := range r {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *outcome) int {
		return cmp.Or(cmp.Compare(b.elapsed, a.elapsed), cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
	})
	for _, o := range all {
		if o.failed && o.passed {
			fmt.Fprintf(to, "FLAKY %s %s\n%s\n", o.test, o.pkg, strings.TrimRight(o.failure, "\n"))
		}
	}
	fmt.Fprintln(to, "slowest tests:")
	for _, o := range all[:min(slowest, len(all))] {
		fmt.Fprintf(to, "%8.1f s  %s %s\n", o.elapsed, o.test, o.pkg)
	}
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: report FOLDER")
	}
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.json"))
	if err != nil {
		log.Fatal(err)
	}
	all := reports{}
	for _, path := range files {
		if err := all.readFile(path); err != nil {
			log.Fatal(err)
		}
	}
	all.write(os.Stdout)
}

func (r reports) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return r.read(file)
}
