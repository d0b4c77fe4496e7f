package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/launcher/internal/models/keeper"
	"hotseat.dev/hotseat/launcher/internal/models/modelpull"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// fetcherName is the program's that fetches, which `make build` puts beside the
// launcher.
const fetcherName = "modelfetch"

func (c *cli) pullCommand() *cobra.Command {
	var folder storeFlags
	var f pullFlags
	cmd := &cobra.Command{
		Use:   "pull [flags] URI",
		Short: "Fetch a model to disk",
		Long: `Fetch a model to disk, and print the folder that it is in. Addresses are:

  hf://org/name[@revision]          the Hugging Face hub
  https://host/path                 a web server
  s3://bucket/folder                a bucket; also gs:// and azblob://
  oci://registry/repository:tag     a registry of images
  ollama://name:tag                 Ollama's registry, for the engine llamacpp
  file:///folder                    a folder of this machine
  pvc://claim/folder                a mounted claim, see --claim

A pull that was interrupted continues where it stopped.`,
		Example: `  launcher pull hf://Qwen/Qwen3-0.6B
  launcher pull hf://Qwen/Qwen3-8B@main --include '*.safetensors' --include '*.json'
  launcher pull s3://models/llama --storage-limit 200GiB --model-retention lru`,
		Args: exactly("URI"),
	}
	folder.add(cmd)
	folder.addWait(cmd)
	f.add(cmd)
	c.formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := fetchapi.CheckAddress(args[0]); err != nil {
			return usagef("%w", err)
		}
		if meant := addressMeant(args[0]); meant != "" {
			return usagef("%q is no address of a model; did you mean %s?", args[0], meant)
		}
		options, err := f.options()
		if err != nil {
			return err
		}
		expected, err := f.expects()
		if err != nil {
			return err
		}
		program, err := f.program()
		if err != nil {
			return err
		}
		return interrupted(cmd.Context(), "interrupted; the next pull continues where this one stopped", func(ctx context.Context) error {
			return c.pull(ctx, folder, options, modelpull.Options{Program: program, URI: args[0], Selection: f.selection, Expected: expected, Stderr: c.err})
		})
	}
	return cmd
}

// hubModel matches how the hub names a model, perhaps with its revision.
var hubModel = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)?(@[\w./-]+)?$`)

// addressMeant is the address that was probably meant by text without a scheme; empty
// where text has one.
func addressMeant(text string) string {
	switch {
	case strings.Contains(text, "://"):
		return ""
	case filepath.IsAbs(text):
		return "file://" + text
	case hubModel.MatchString(text) && !strings.HasPrefix(text, "."):
		return "hf://" + text
	}
	return "hf://org/name, https://host/path or file:///folder"
}

// pullFlags say what is pulled, and how.
type pullFlags struct {
	limit, tokenFile, rate, retention, size string

	sources   []string
	claims    []string // where they are mounted
	selection modelref.Selection
	streams   int
	expected  modelpull.Expected
}

func (f *pullFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.selection.Include, "include", nil, "`PATTERN` of files to fetch, such as *.safetensors; * stands for any text, slashes too; may be repeated")
	flags.StringArrayVar(&f.selection.Exclude, "exclude", nil, "`PATTERN` of files to leave out, such as original/; may be repeated")
	flags.StringVar(&f.limit, "storage-limit", "", "`SIZE` that all models of the store may have together, such as 80GiB; default: the whole disk")
	flags.StringVar(&f.retention, "model-retention", string(modelstore.Keep), "what to do, when there is no room, with models that nobody uses or keeps (launcher models keep): `keep|lru`; lru removes them, least recently used first")
	flags.StringVar(&f.size, "size", "", "`SIZE` that the model may have, such as 15GiB; a larger model is refused")
	flags.StringVar(&f.expected.Digest, "digest", "", "`DIGEST` that the model must have, sha256:…, as -o json prints it; a model with another is refused")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the token for the source's host (for the hub, default: the environment's HF_TOKEN)")
	flags.StringArrayVar(&f.sources, "model-source", nil, "`SCHEME=PROGRAM`: the program that fetches models of a further scheme; may be repeated")
	flags.StringArrayVar(&f.claims, "claim", nil, "`CLAIM=DIR`: the folder in which the claim of pvc://claim/folder is mounted; may be repeated")
	flags.IntVar(&f.streams, "streams", 8, "how many files to fetch at once")
	flags.StringVar(&f.rate, "bytes-per-second", "", "`SIZE` that all streams together may fetch in a second, such as 50MiB; default: no limit")
}

// options are those of the store.
func (f *pullFlags) options() (o modelstore.Options, err error) {
	o = modelstore.Options{Retention: modelstore.Retention(f.retention)}
	if o.Retention != modelstore.Keep && o.Retention != modelstore.LRU {
		return o, usagef("--model-retention: must be keep or lru, not %q", f.retention)
	}
	o.Limit, err = bytesOf("--storage-limit", f.limit)
	return o, err
}

// expects is what the model has to be.
func (f *pullFlags) expects() (e modelpull.Expected, err error) {
	if e = f.expected; e.Digest != "" {
		if err := fetchapi.CheckDigest(e.Digest); err != nil {
			return e, usagef("--digest: %w", err)
		}
	}
	e.Bytes, err = bytesOf("--size", f.size)
	return e, err
}

// program is modelfetch with its flags.
func (f *pullFlags) program() ([]string, error) {
	if f.streams < 1 {
		return nil, usagef("--streams: at least 1")
	}
	if err := f.selection.Check(); err != nil {
		return nil, usagef("--include, --exclude: %w", err)
	}
	sources, err := config.Programs(f.sources)
	if err != nil {
		return nil, usagef("--model-source: %w", err)
	}
	program, err := fetcher()
	if err != nil {
		return nil, err
	}
	program = append(program, "--streams", fmt.Sprint(f.streams))
	for _, source := range sources {
		program = append(program, "--"+fetchapi.ProgramFlag, source)
	}
	if f.rate != "" {
		n, err := bytesOf("--bytes-per-second", f.rate)
		if err != nil || n <= 0 {
			return nil, usagef("--bytes-per-second: must be a number of bytes such as 50MiB, not %q", f.rate)
		}
		program = append(program, "--bytes-per-second", fmt.Sprint(n))
	}
	for _, claim := range f.claims {
		if name, dir, ok := strings.Cut(claim, "="); !ok || name == "" || dir == "" {
			return nil, usagef("--claim: must be as CLAIM=DIR, not %q", claim)
		}
		program = append(program, "--claim", claim)
	}
	if f.tokenFile != "" {
		program = append(program, "--token-file", f.tokenFile)
	}
	return program, nil
}

// pulled is what a pull answers.
type pulled struct {
	launcherapi.Model
	There        bool                `json:"already_there"`
	NetworkBytes int64               `json:"network_bytes"`
	Evicted      []launcherapi.Model `json:"evicted,omitempty"`
}

func (c *cli) pull(ctx context.Context, folder storeFlags, options modelstore.Options, o modelpull.Options) (err error) {
	options.Note = c.tellNote
	store, err := folder.open(ctx, options, c.tellWaiting)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	told := newPullProgress(c.err, o.URI)
	o.Store, o.Progress, o.Admitted = store, told.line, told.admitted
	result, err := modelpull.Run(ctx, o)
	told.close()
	if failed, ok := errors.AsType[*fetchapi.Error](err); ok {
		return fmt.Errorf("cannot pull %s: %s: %w", o.URI, failed.Reason, failed)
	}
	if err != nil {
		return fmt.Errorf("cannot pull %s: %w", o.URI, err)
	}
	answer := pulled{Model: keeper.Model(&store.Reader, result.Version), There: result.There, NetworkBytes: result.NetworkBytes}
	for _, v := range result.Evicted {
		gone := keeper.Model(&store.Reader, v.Version)
		gone.Path = ""
		answer.Evicted = append(answer.Evicted, gone)
	}
	return c.show(answer, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, answer.Path)
		return err
	})
}

// fetcher finds modelfetch beside the launcher.
func fetcher() ([]string, error) {
	folder, err := ownFolder()
	if err != nil {
		return nil, err
	}
	path, err := lookUp(filepath.Join(folder, fetcherName))
	if err != nil {
		return nil, fmt.Errorf("cannot find %s, which fetches models, beside the launcher: %w; build it by make build, or install it in the launcher's folder", fetcherName, err)
	}
	return []string{path}, nil
}

// pullProgress tells how far a pull is: by a bar in a terminal, by a line now and
// then elsewhere.
type pullProgress struct {
	*progress
	what string
	bar  *progressbar.ProgressBar
	tty  io.Writer
	said time.Time
	done int64 // of what the last line said
}

// often is how long there is between two lines.
const often = 5 * time.Second

func newPullProgress(out io.Writer, what string) *pullProgress {
	p := &pullProgress{progress: newProgress(out), what: what}
	if isTerminal(out) {
		p.tty = out
	}
	return p
}

func (p *pullProgress) line(l fetchapi.Line) {
	switch {
	case l.Type == fetchapi.TypeNote:
		if p.bar != nil {
			_ = p.bar.Clear()
		}
		p.progress.line("%s", visible(l.Text))
	case p.bar != nil:
		_ = p.bar.Set64(l.FetchedBytes) // a terminal that is gone stops nothing
	case l.FetchedBytes == l.TotalBytes && p.done != l.TotalBytes || time.Since(p.said) >= often:
		p.said, p.done = time.Now(), l.FetchedBytes
		p.progress.line("%s of %s (%d%%)%s", text(l.FetchedBytes), text(l.TotalBytes), percent(l), p.left(l))
	}
}

// admitted begins the bar, whose rate counts from now on.
func (p *pullProgress) admitted(m *fetchapi.Manifest) {
	if p.tty == nil || p.bar != nil {
		return
	}
	p.bar = progressbar.NewOptions64(max(1, m.Bytes()),
		progressbar.OptionSetWriter(p.tty), progressbar.OptionSetDescription(visible(p.what)), progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(),
		progressbar.OptionSetPredictTime(true))
}

func (p *pullProgress) close() {
	if p.bar != nil {
		_ = p.bar.Exit()
		_, _ = fmt.Fprintln(p.tty)
	}
	p.progress.close()
}

// left says how fast bytes come, and how long it will take at that rate.
func (p *pullProgress) left(l fetchapi.Line) string {
	seconds := time.Since(p.began).Seconds()
	if l.NetworkBytes <= 0 || seconds < 1 || l.FetchedBytes >= l.TotalBytes {
		return ""
	}
	rate := float64(l.NetworkBytes) / seconds
	left := time.Duration(float64(l.TotalBytes-l.FetchedBytes) / rate * float64(time.Second))
	return fmt.Sprintf(", %s/s, %s left", text(int64(rate)), age(left))
}

func percent(l fetchapi.Line) int64 {
	if l.TotalBytes <= 0 {
		return 100
	}
	return int64(float64(l.FetchedBytes) / float64(l.TotalBytes) * 100)
}

func text(n int64) string { return launcher.BytesText(uint64(max(0, n))) }
