// Program report prints what the tests of a run did, from the reports that test/ci/gotest.sh
// has written to a folder: each test that failed and then passed, with its first failure,
// and the twenty slowest tests. For a single report it prints the failures, as go test does.
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
	failures  []string // output of each attempt that failed
	passed    bool     // in the last attempt
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
	if !strings.HasPrefix(e.Output, "=== ") { // such lines say that a test begins, or goes on
		o.output.WriteString(e.Output)
	}
	if sub != "" {
		return
	}
	switch e.Action {
	case "run":
		o.output.Reset()
	case "pass", "skip":
		o.passed, o.elapsed = true, max(o.elapsed, e.Elapsed)
	case "fail":
		o.failures = append(o.failures, strings.TrimRight(o.output.String(), "\n"))
		o.passed, o.elapsed = false, max(o.elapsed, e.Elapsed)
	}
}

// slowestFirst lists the outcomes.
func (r reports) slowestFirst() []*outcome {
	all := make([]*outcome, 0, len(r))
	for _, o := range r {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *outcome) int {
		return cmp.Or(cmp.Compare(b.elapsed, a.elapsed), cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
	})
	return all
}

// writeFailures prints what each attempt that failed has printed.
func (r reports) writeFailures(to io.Writer) {
	for _, o := range r.slowestFirst() {
		for _, failure := range o.failures {
			fmt.Fprintln(to, failure)
		}
	}
}

// writeSummary prints the tests that failed once, then the slowest ones.
func (r reports) writeSummary(to io.Writer) {
	all := r.slowestFirst()
	for _, o := range all {
		if len(o.failures) > 0 && o.passed {
			fmt.Fprintf(to, "FLAKY %s %s\n%s\n", o.test, o.pkg, o.failures[0])
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
		log.Fatal("usage: report FOLDER or report FILE.json")
	}
	write, files := reports.writeFailures, os.Args[1:]
	if !strings.HasSuffix(os.Args[1], ".json") {
		write = reports.writeSummary
		var err error
		if files, err = filepath.Glob(filepath.Join(os.Args[1], "*.json")); err != nil {
			log.Fatal(err)
		}
	}
	all := reports{}
	for _, path := range files {
		if err := all.readFile(path); err != nil {
			log.Fatal(err)
		}
	}
	write(all, os.Stdout)
}

func (r reports) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return r.read(file)
}
