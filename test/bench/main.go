// Bench times the launcher, each figure beside a bare baseline in the same
// run, and prints a table in Markdown. With -write it puts the table into
// spec/benchmarks.md too.
//
// It drives the built programs from outside, as a user would: real launcher,
// real engine processes (the stand-in of test/enginesim), everything on
// loopback, in folders of its own. Nothing is left when it ends, also not when
// it fails or is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/figures"
	"hotseat.dev/hotseat/test/helpers/harness"
)

func main() {
	if target := os.Getenv(bareProxyEnv); target != "" {
		serveBareProxy(target)
		return
	}
	if told := os.Getenv(fileServerEnv); told != "" {
		serveFiles(told)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

var parts = figures.Parts[*bench]{
	{Name: "life", Heading: "Starts, ends and swaps", Run: (*bench).life},
	{Name: "stubborn", Run: (*bench).stubborn},
	{Name: "cycles", Run: (*bench).cycles},
	{Name: "swaps", Run: (*bench).swaps},
	{Name: "slow-swaps", Run: (*bench).slowSwaps},
	{Name: "cold-swaps", Run: (*bench).coldSwaps},
	{Name: "crowd", Heading: "Many instances and watchers", Run: (*bench).crowd},
	{Name: "watchers", Run: (*bench).watchers},
	{Name: "proxy", Heading: "Proxy and memory", Run: (*bench).proxy},
	{Name: "memory", Run: (*bench).memory},
	{Name: "front-door", Heading: "The front door", Run: (*bench).frontDoor},
	{Name: "wakes", Run: (*bench).wakes},
	{Name: "llama", Run: (*bench).llama},
}

// bench is one run of the program.
type bench struct {
	ctx              context.Context
	dir              string  // of everything that the run makes
	launcher, engine string  // programs
	clients          string  // folder of those that fetch models beside the launcher
	scale            float64 // of the number of samples
	progress         io.Writer
}

// n scales a number of samples.
func (b *bench) n(full int) int { return max(2, int(float64(full)*b.scale)) }

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	write := flags.Bool("write", false, "put the table into "+figures.Document)
	only := flags.String("only", "", "run these parts alone, separated by commas: "+parts.Names()+"; or one of those with a table of their own: "+strings.Join(tables, ", "))
	vllm := flags.String("vllm", "", "take the figures of real vLLM alone, which test/vllm-cpu has set up in this folder: starts, firsts, tokens, swaps")
	clients := flags.String("clients", "", "folder of the programs that `make bench-clients` has made; empty: no "+fetchPart)
	scale := flags.Float64("scale", 1, "take so many times the usual number of samples")
	if err := flags.Parse(args); err != nil {
		return err
	}
	own := slices.Contains(tables, *only) // which say how much was taken
	if *write && !own && (*only != "" && *vllm == "" || *scale != 1) {
		return errors.New("cannot write a table of a part: leave -only and -scale out")
	}
	dir, err := harness.Folder("hotseat-bench-")
	if err != nil {
		return fmt.Errorf("cannot make a folder: %w", err)
	}
	b := &bench{ctx: ctx, dir: dir, clients: *clients, scale: *scale, progress: progress}
	defer func() { err = errors.Join(err, sweep(dir), os.RemoveAll(dir)) }()
	if err := b.build(); err != nil {
		return err
	}
	if *vllm != "" {
		return b.real(*vllm, *only, out, *write)
	}
	return b.take(*only, out, *write)
}

// take takes the figures of the launcher, or those of one of the tables.
func (b *bench) take(only string, out io.Writer, write bool) error {
	if !slices.Contains(tables, only) {
		rows, err := parts.Run(b.ctx, b, only, b.progress)
		err = errors.Join(err, figures.Publish(out, write && err == nil, beginMark, figures.Render("launcher", rows)))
		if err != nil || only != "" {
			return err
		}
	}
	if only == "" || only == weightsPart {
		all, err := b.weights()
		if err == nil {
			err = figures.Publish(out, write, weightsMark, renderWeights(all))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", weightsPart, err)
		}
	}
	if only == "" || only == fetchPart {
		return b.fetching(out, write)
	}
	return nil
}

// The parts that have a table of their own.
const (
	weightsPart = "weights"
	fetchPart   = "fetch"
)

var tables = []string{weightsPart, fetchPart}

// fetching takes the figures of fetches.
func (b *bench) fetching(out io.Writer, write bool) error {
	if b.clients == "" {
		fmt.Fprintln(b.progress, "NOT MEASURED: no fetches, since -clients names no folder; `make bench` does")
		return nil
	}
	err := harness.Build(b.ctx, ".", b.dir, []string{"CGO_ENABLED=0"}, "launcher/cmd/modelfetch")
	if err != nil {
		return err
	}
	all, err := b.fetches()
	if err != nil {
		return fmt.Errorf("%s: %w", fetchPart, err)
	}
	return figures.Publish(out, write, fetchMark, renderFetches(all))
}

// real takes the figures of real vLLM, which test/vllm-cpu has set up in a
// folder.
func (b *bench) real(setup, only string, out io.Writer, write bool) error {
	b.engine = filepath.Join(setup, "bin", "vllm")
	if only == "" || only == "starts" {
		ways, err := b.starts(setup)
		if err != nil {
			return fmt.Errorf("starts: %w", err)
		}
		if err := figures.Publish(out, write, startsMark, renderStarts(ways)); err != nil {
			return err
		}
	}
	if only == "" || only == "firsts" {
		all, err := b.firsts(setup)
		if err != nil {
			return fmt.Errorf("firsts: %w", err)
		}
		if err := figures.Publish(out, write, firstsMark, renderFirsts(all)); err != nil {
			return err
		}
	}
	if only == "" || only == "tokens" {
		all, err := b.firstTokens(setup)
		if err != nil {
			return fmt.Errorf("tokens: %w", err)
		}
		if err := figures.Publish(out, write, tokensMark, renderTokens(all)); err != nil {
			return err
		}
	}
	if only == "" || only == "swaps" {
		paces, err := b.realSwaps(setup)
		if err != nil {
			return fmt.Errorf("swaps: %w", err)
		}
		return figures.Publish(out, write, realSwapsMark, renderRealSwaps(paces))
	}
	return nil
}

// build builds the programs as `make build` does.
func (b *bench) build() error {
	b.launcher, b.engine = filepath.Join(b.dir, "launcher"), filepath.Join(b.dir, "enginesim")
	err := harness.Build(b.ctx, ".", b.dir, []string{"CGO_ENABLED=1"}, "launcher/cmd/launcher")
	if err == nil {
		err = harness.Build(b.ctx, ".", b.dir, []string{"CGO_ENABLED=0"}, "test/enginesim")
	}
	if err != nil {
		return err
	}
	return errors.Join(forget(b.launcher), forget(b.engine))
}

// forget drops a file from the page cache, so that it is read from the disk as
// an installed one is. What the linker has just written lies in larger pieces
// there, of which more counts as resident in who maps the file.
func forget(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot open what was built: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		return fmt.Errorf("cannot drop what was built from the page cache: %w", err)
	}
	return nil
}
