// Bench takes the figures of dual pods on clusters of its own, and prints a
// table in Markdown. With -write it puts the table into spec/benchmarks.md too.
//
// The real controller runs against a real API server. Part kubelet has a real
// node with it; the others have thousands of nodes and Pods that KWOK plays, with
// stand-ins for the launchers and requester programs in them, and agents beside
// kubelets that are played. Moments are taken
// from the API server's audit log, the launchers' events and the stand-ins'
// notes, all by the clock of this machine. It takes root. Nothing is left when
// it ends, also not when it fails or is interrupted.
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
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"hotseat.dev/hotseat/test/helpers/figures"
)

// mark is the line of the document that the table stands after.
const mark = "<!-- dual pods, written by `make bench-cluster` -->"

// patience bounds every wait for something that has to happen. It is no measure
// of speed.
const patience = 3 * time.Minute

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	work := func() error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) }
	if os.Getenv(standInEnv) != "" {
		work = func() error { return serveStandIn(ctx) }
	}
	if kubeconfig := os.Getenv(bareCacheEnv); kubeconfig != "" {
		work = func() error { return serveBareCache(ctx, kubeconfig) }
	}
	err := work()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

var parts = figures.Parts[*bench]{
	{Name: "kubelet", Run: (*bench).kubelet},
	{Name: "service", Run: (*bench).service},
	{Name: "at-once", Run: (*bench).atOnce},
	{Name: "bindings", Run: (*bench).bindings},
	{Name: "placement", Run: (*bench).placement},
	{Name: "memory", Run: (*bench).memory},
	{Name: "models", Run: (*bench).models},
	{Name: "ping-pong", Run: (*bench).pingPong},
	{Name: "groups", Heading: "Groups of servers", Run: (*bench).groups},
	{Name: "gangs", Run: (*bench).gangs},
	{Name: "servings", Run: (*bench).servings},
	{Name: "zero", Heading: "Models", Run: (*bench).zero},
	{Name: "seats", Run: (*bench).seats},
	{Name: "many", Run: (*bench).many},
}

// bench is one run of the program.
type bench struct {
	ctx      context.Context // of the whole run
	dir      string          // of everything that the run makes
	scale    float64         // of the number of samples
	profiles string          // folder for the controller's profiles; empty: none are taken
	progress io.Writer
}

// n scales a number of samples.
func (b *bench) n(full int) int { return max(2, int(float64(full)*b.scale)) }

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	write := flags.Bool("write", false, "put the table into "+figures.Document)
	only := flags.String("only", "", "run these parts alone, separated by commas: "+parts.Names())
	scale := flags.Float64("scale", 1, "take so many times the usual number of samples, nodes and Pods")
	profiles := flags.String("profiles", "", "put profiles of the controller into this folder: CPU in parts at-once, bindings, placement and models, heap and goroutines in parts memory and models; parts kubelet and service put a trace of each start there, parts zero and seats one of each request")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *write && (*only != "" || *scale != 1) {
		return errors.New("cannot write a table of a part: leave -only and -scale out")
	}
	if _, err := os.Stat("bin/controller"); err != nil {
		return fmt.Errorf("the programs are not built (run `make build`, and this in the root of the repository): %w", err)
	}
	if *profiles != "" {
		if err := os.MkdirAll(*profiles, 0o755); err != nil {
			return fmt.Errorf("cannot make the folder for profiles: %w", err)
		}
	}
	b := &bench{ctx: ctx, scale: *scale, profiles: *profiles, progress: progress}
	if b.dir, err = os.MkdirTemp("", "hotseat-bench-cluster-"); err != nil {
		return fmt.Errorf("cannot make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := os.WriteFile(b.policy(), []byte(policy), 0o600); err != nil {
		return fmt.Errorf("cannot write the audit policy: %w", err)
	}
	rows, err := parts.Run(ctx, b, *only, progress)
	return errors.Join(err, figures.Publish(out, *write && err == nil, mark, figures.Render("dual pods", rows)))
}

func (b *bench) policy() string { return filepath.Join(b.dir, "audit.yaml") }
