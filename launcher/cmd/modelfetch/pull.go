package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelpull"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
)

// pulling is `modelfetch pull`: it is its own parent, so that a model comes into a folder
// as it does with a launcher, and no launcher is needed. Jobs of Kubernetes run it.
type pulling struct {
	store   modelstore.Options
	options modelpull.Options
	result  string // file for the outcome; empty: none
	log     io.Writer
}

// pull runs it, and gives the status to exit with.
func pull(args []string) int {
	p := &pulling{log: os.Stderr}
	if err := p.parse(args); err != nil {
		return fetchapi.ExitUsage // the flag package has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	outcome, err := p.run(ctx)
	status := 0
	if err != nil {
		fmt.Fprintf(p.log, "cannot pull %s: %v\n", p.options.URI, err)
		status = fetchapi.ExitBroken
		if refused, ok := errors.AsType[*fetchapi.Error](err); ok {
			status = fetchapi.ExitRefused
			outcome.Error = &fetchapi.Error{Reason: refused.Reason, Detail: shortened(err.Error())}
		}
	}
	if err := p.tell(outcome); err != nil && status == 0 {
		fmt.Fprintln(p.log, err)
		status = fetchapi.ExitBroken
	}
	return status
}

// maxDetail is how many bytes of a reason are told: a Pod's termination message has 4096
// (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/).
const maxDetail = 2048

func shortened(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxDetail)], "")
}

func (p *pulling) parse(args []string) error {
	flags := flag.NewFlagSet("modelfetch pull", flag.ContinueOnError)
	flags.StringVar(&p.store.Dir, "store", "", "folder that keeps the model")
	flags.Int64Var(&p.store.Limit, "storage-limit", 0, "bytes that all models of the folder may take; 0: as many as the disk has")
	flags.StringVar(&p.options.Holder, "holder", "", "by whose name the model is wanted")
	flags.StringVar(&p.result, "result", "", "file that the outcome is written to")
	streams := flags.Int("streams", 8, "files that are fetched at once")
	rate := flags.Int("bytes-per-second", 0, "of all streams together; 0: as fast as it goes")
	var more []string
	listed(flags, "include", "pattern of files that are fetched; may be given more than once", &p.options.Include)
	listed(flags, "exclude", "pattern of files that are left out; may be given more than once", &p.options.Exclude)
	listed(flags, "claim", claimUsage, &more)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || p.store.Dir == "" || p.store.Limit < 0 {
		err := errors.New("usage: modelfetch pull --store DIR [flags] URI, with no number below what it can be")
		fmt.Fprintln(flags.Output(), err)
		return err
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(flags.Output(), err)
		return err
	}
	p.options.URI = flags.Arg(0)
	p.options.Program = []string{self, "--streams=" + strconv.Itoa(*streams), "--bytes-per-second=" + strconv.Itoa(*rate)}
	for _, claim := range more {
		p.options.Program = append(p.options.Program, "--claim="+claim)
	}
	return nil
}

// listed is a flag that may be given more than once.
func listed(flags *flag.FlagSet, name, usage string, into *[]string) {
	flags.Func(name, usage, func(value string) error {
		*into = append(*into, value)
		return nil
	})
}

// run pulls the model. The error is a *fetchapi.Error where another try at once would
// meet the same.
func (p *pulling) run(ctx context.Context) (outcome fetchapi.Outcome, err error) {
	store, err := p.open(ctx)
	if err != nil {
		return outcome, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	o := p.options
	o.Store, o.Stderr = store, p.log
	o.Credentials = fetchapi.FromEnvironment(o.URI, os.Getenv)
	o.Admitted = func(m *fetchapi.Manifest) {
		fmt.Fprintf(p.log, "%s, revision %s: %s in %d files\n", m.URI, m.Revision, text(m.Bytes()), len(m.Files))
	}
	var said time.Time
	o.Progress = func(l fetchapi.Line) {
		switch {
		case l.Type == fetchapi.TypeNote:
			fmt.Fprintln(p.log, l.Text)
		case time.Since(said) >= often:
			said = time.Now()
			fmt.Fprintf(p.log, "%s of %s are fetched\n", text(l.FetchedBytes), text(l.TotalBytes))
		}
	}
	result, err := modelpull.Run(ctx, o)
	if err != nil {
		return outcome, err
	}
	v := result.Version
	fmt.Fprintf(p.log, "%s, revision %s, is whole: %s\n", v.Manifest.URI, v.Manifest.Revision, store.Files(v.Key))
	return fetchapi.Outcome{ID: v.Key, Revision: v.Manifest.Revision, Bytes: v.Manifest.Bytes(), Lacks: len(v.Manifest.Lacks("")) > 0}, nil
}

// often is how long there is between two lines of progress.
const often = 5 * time.Second

func text(n int64) string { return launcher.BytesText(uint64(max(0, n))) }

// open takes the folder, waiting for another owner: of one claim there may be several
// ModelCaches.
func (p *pulling) open(ctx context.Context) (*modelstore.Store, error) {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for told := false; ; {
		store, err := modelstore.Open(p.store)
		_, locked := errors.AsType[*modelstore.LockedError](err)
		switch {
		case err == nil:
			return store, nil
		case errors.Is(err, os.ErrPermission):
			return nil, &fetchapi.Error{Reason: fetchapi.ReasonClaimNotWritable, Detail: fmt.Sprintf("%v: the claim lets user %d not write; name one that it lets by spec.fetch.runAsUser", err, os.Getuid())}
		case !locked:
			return nil, &fetchapi.Error{Reason: fetchapi.ReasonInternal, Detail: err.Error()}
		case !told:
			told = true
			fmt.Fprintln(p.log, "waiting: another process changes the store")
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tell writes the outcome where it was asked for.
func (p *pulling) tell(outcome fetchapi.Outcome) error {
	if p.result == "" {
		return nil
	}
	text, err := json.Marshal(outcome)
	if err == nil {
		err = os.WriteFile(p.result, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot write the outcome: %w", err)
	}
	return nil
}

// claims are the folders where claims are mounted, by their names.
type claims map[string]string

const claimUsage = "CLAIM=DIR: where the claim is mounted whose folders are the addresses pvc://CLAIM/…; may be given more than once"

// set takes one more.
func (c claims) set(value string) error {
	name, dir, ok := strings.Cut(value, "=")
	if !ok || name == "" || dir == "" {
		return fmt.Errorf("is as CLAIM=DIR, not %q", value)
	}
	c[name] = dir
	return nil
}
