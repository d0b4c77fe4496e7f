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
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelpull"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
)

// pulling is `modelfetch pull`: modelfetch is its own parent, and pulls a model into a
// folder as a launcher does, but without a launcher. Kubernetes Jobs run it.
type pulling struct {
	store   modelstore.Options
	options modelpull.Options
	result  string // file for the outcome; empty: none
	link    string // path of a symbolic link to the model's folder; empty: none
	log     io.Writer
}

// pull runs `modelfetch pull`, and returns the status to exit with.
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
		reason := fetchapi.ReasonInternal
		if refused, ok := errors.AsType[*fetchapi.Error](err); ok {
			status, reason = fetchapi.ExitRefused, refused.Reason
		}
		outcome.Error = &fetchapi.Error{Reason: reason, Detail: shortened(err.Error())}
	}
	if err := p.tell(outcome); err != nil && status == 0 {
		fmt.Fprintln(p.log, err)
		status = fetchapi.ExitBroken
	}
	return status
}

// maxDetail bounds the bytes of a reason: a Pod's termination message has 4096 at most
// (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/).
const maxDetail = 2048

func shortened(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxDetail)], "")
}

func (p *pulling) parse(args []string) error {
	flags := flag.NewFlagSet("modelfetch pull", flag.ContinueOnError)
	flags.StringVar(&p.store.Dir, "store", "", "folder of the model store")
	flags.Int64Var(&p.store.Limit, "storage-limit", 0, "how many bytes all models of the store may take; 0: as many as the disk has")
	flags.StringVar(&p.options.Holder, "holder", "", "name of the holder that wants the model")
	flags.StringVar(&p.result, "result", "", "file to write the outcome to")
	flags.StringVar(&p.link, "link", "", "path of a symbolic link to make to the model's folder; it replaces an earlier link")
	streams := flags.Int("streams", 8, "how many files are fetched at once")
	rate := flags.Int("bytes-per-second", 0, "limit for all streams together; 0: no limit")
	var more []string
	listed(flags, "include", "pattern of files to fetch; may be given more than once", &p.options.Include)
	listed(flags, "exclude", "pattern of files to leave out; may be given more than once", &p.options.Exclude)
	listed(flags, "claim", claimUsage, &more)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || p.store.Dir == "" || p.store.Limit < 0 {
		err := errors.New("usage: modelfetch pull --store DIR [flags] URI; --storage-limit is at least 0")
		fmt.Fprintln(flags.Output(), err)
		return err
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(flags.Output(), err)
		return err
	}
	p.store.Note = func(text string) { fmt.Fprintln(p.log, text) }
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

// run pulls the model. The error is a *fetchapi.Error if another try at once would fail in
// the same way.
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
	fmt.Fprintf(p.log, "%s, revision %s, is complete in %s\n", v.Manifest.URI, v.Manifest.Revision, store.Files(v.Key))
	if p.link != "" {
		if err := relink(store.Files(v.Key), p.link); err != nil {
			return outcome, &fetchapi.Error{Reason: fetchapi.ReasonInvalid, Detail: "cannot make the link of --link: " + err.Error()}
		}
	}
	return fetchapi.Outcome{ID: v.Key, Revision: v.Manifest.Revision, Bytes: v.Manifest.Bytes(), Lacks: len(v.Manifest.Lacks("")) > 0}, nil
}

// relink makes a symbolic link to a folder at a path. It replaces an earlier link, but nothing else.
func relink(folder, path string) error {
	is, err := os.Lstat(path)
	if err == nil && is.Mode().Type() != os.ModeSymlink {
		return fmt.Errorf("%s exists, and is no link: name a path that is free", path)
	}
	target, err := filepath.Rel(filepath.Dir(path), folder)
	if err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) { // left by a pull that was interrupted
		return err
	}
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// often is the least time between two lines of progress.
const often = 5 * time.Second

func text(n int64) string { return launcher.BytesText(uint64(max(0, n))) }

// open opens the store as its owner, and waits while another process owns it: several
// ModelCaches may use one claim.
func (p *pulling) open(ctx context.Context) (*modelstore.Store, error) {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for told := false; ; {
		store, err := modelstore.Open(p.store)
		_, locked := errors.AsType[*modelstore.LockedError](err)
		switch {
		case err == nil:
			if exposed := modelstore.Exposed(store.Dir()); exposed != "" {
				fmt.Fprintln(p.log, exposed)
			}
			return store, nil
		case errors.Is(err, os.ErrPermission):
			return nil, &fetchapi.Error{Reason: fetchapi.ReasonClaimNotWritable, Detail: fmt.Sprintf("%v: user %d may not write to the claim; set spec.fetch.runAsUser to a user who may", err, os.Getuid())}
		case !locked:
			return nil, &fetchapi.Error{Reason: fetchapi.ReasonInternal, Detail: err.Error()}
		case !told:
			told = true
			fmt.Fprintln(p.log, "waiting for another process that owns the model store")
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tell writes the outcome to the file of --result, if there is one.
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

const claimUsage = "CLAIM=DIR: the folder where the claim of the addresses pvc://CLAIM/… is mounted; may be given more than once"

// set adds a claim.
func (c claims) set(value string) error {
	name, dir, ok := strings.Cut(value, "=")
	if !ok || name == "" || dir == "" {
		return fmt.Errorf("must be CLAIM=DIR, not %q", value)
	}
	c[name] = dir
	return nil
}
