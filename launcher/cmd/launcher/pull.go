package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/modelpull"
	"hotseat.dev/hotseat/launcher/internal/models"
	"hotseat.dev/hotseat/launcher/internal/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// fetcherName is the program's that fetches, which `make build` puts beside the
// launcher.
const fetcherName = "modelfetch"

func (c *cli) pullCommand() *cobra.Command {
	var folder storeFlags
	var limit, tokenFile, rate, retention string
	var pin bool
	var selection modelref.Selection
	var claims []string
	var streams int
	cmd := &cobra.Command{
		Use:   "pull [flags] URI",
		Short: "Fetch a model into a store: hf://org/name@revision, https://host/path, file:///folder, pvc://claim/folder, s3://bucket/folder, gs://…, azblob://…, oci://registry/repository:tag",
		Args:  exactly("URI"),
	}
	folder.add(cmd)
	folder.addWait(cmd)
	cmd.Flags().StringArrayVar(&selection.Include, "include", nil, "`PATTERN` of the files to fetch, as *.safetensors, where * is any text, slashes too; may be given more than once")
	cmd.Flags().StringArrayVar(&selection.Exclude, "exclude", nil, "`PATTERN` of files to leave out, as original/; may be given more than once")
	cmd.Flags().StringVar(&limit, "storage-limit", "", "what the models of the store may take together, such as 80GiB; default: as much as the disk has")
	cmd.Flags().StringVar(&retention, "model-retention", string(modelstore.Keep), "what becomes of models that nobody uses, wants or has pinned when there is no room for this one, `keep|lru`: they stay, or go, the one that was used longest ago first")
	cmd.Flags().BoolVar(&pin, "pin", false, "this model stays when room is needed for others; --pin=false takes that back")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "`FILE` with the token for the source's host (for the hub, default the environment HF_TOKEN)")
	cmd.Flags().IntVar(&streams, "streams", 4, "files that are fetched at once")
	cmd.Flags().StringArrayVar(&claims, "claim", nil, "`CLAIM=DIR`, where the claim of an address as pvc://claim/folder is mounted; may be given more than once")
	cmd.Flags().StringVar(&rate, "bytes-per-second", "", "what all streams may take together, such as 50MiB; default: as much as there is")
	c.formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if streams < 1 {
			return usagef("--streams: at least 1")
		}
		options := modelstore.Options{Retention: modelstore.Retention(retention)}
		if options.Retention != modelstore.Keep && options.Retention != modelstore.LRU {
			return usagef("--model-retention: must be keep or lru, not %q", retention)
		}
		if err := selection.Check(); err != nil {
			return usagef("--include, --exclude: %w", err)
		}
		var err error
		if options.Limit, err = limitOf(limit); err != nil {
			return err
		}
		program, err := fetcher()
		if err != nil {
			return err
		}
		program = append(program, "--streams", fmt.Sprint(streams))
		if rate != "" {
			n, err := limitOf(rate)
			if err != nil || n <= 0 {
				return usagef("--bytes-per-second: must be a number of bytes such as 50MiB, not %q", rate)
			}
			program = append(program, "--bytes-per-second", fmt.Sprint(n))
		}
		for _, claim := range claims {
			if name, dir, ok := strings.Cut(claim, "="); !ok || name == "" || dir == "" {
				return usagef("--claim: must be as CLAIM=DIR, not %q", claim)
			}
			program = append(program, "--claim", claim)
		}
		if tokenFile != "" {
			program = append(program, "--token-file", tokenFile)
		}
		return interrupted(cmd.Context(), "interrupted; what was fetched stays, and the next pull goes on from there", func(ctx context.Context) error {
			return c.pull(ctx, folder, options, modelpull.Options{Program: program, URI: args[0], Selection: selection, Retention: pinned(cmd, pin), Stderr: c.err})
		})
	}
	return cmd
}

// pinned is what --pin says of the model that is pulled.
func pinned(cmd *cobra.Command, pin bool) modelstore.Retention {
	switch {
	case pin:
		return modelstore.Keep
	case cmd.Flags().Changed("pin"):
		return modelstore.Default
	default:
		return ""
	}
}

// pulled is what a pull answers.
type pulled struct {
	launcherapi.Model
	There        bool                `json:"already_there"`
	NetworkBytes int64               `json:"network_bytes"`
	Evicted      []launcherapi.Model `json:"evicted,omitempty"`
}

func (c *cli) pull(ctx context.Context, folder storeFlags, options modelstore.Options, o modelpull.Options) (err error) {
	store, err := folder.open(ctx, options, c.tellWaiting)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	told := newPullProgress(c.err, o.URI)
	o.Store, o.Progress, o.Admitted = store, told.line, func(*fetchapi.Manifest) {}
	result, err := modelpull.Run(ctx, o)
	told.close()
	if failed, ok := errors.AsType[*fetchapi.Error](err); ok {
		return fmt.Errorf("cannot pull %s: %s: %w", o.URI, failed.Reason, failed)
	}
	if err != nil {
		return fmt.Errorf("cannot pull %s: %w", o.URI, err)
	}
	answer := pulled{Model: models.Model(&store.Reader, result.Version), There: result.There, NetworkBytes: result.NetworkBytes}
	for _, v := range result.Evicted {
		gone := models.Model(&store.Reader, v)
		gone.Path, gone.HubCache = "", ""
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
		return nil, fmt.Errorf("cannot find %s, which has to be beside the launcher: %w", fetcherName, err)
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
	if f, ok := out.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			p.tty = f
		}
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
	case p.tty != nil:
		p.draw(l)
	case l.FetchedBytes == l.TotalBytes && p.done != l.TotalBytes || time.Since(p.said) >= often:
		p.said, p.done = time.Now(), l.FetchedBytes
		p.progress.line("%s of %s (%d%%)%s", text(l.FetchedBytes), text(l.TotalBytes), percent(l), p.left(l))
	}
}

func (p *pullProgress) draw(l fetchapi.Line) {
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(max(1, l.TotalBytes),
			progressbar.OptionSetWriter(p.tty), progressbar.OptionSetDescription(visible(p.what)), progressbar.OptionShowBytes(true),
			progressbar.OptionUseIECUnits(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(),
			progressbar.OptionSetPredictTime(true))
	}
	_ = p.bar.Set64(l.FetchedBytes) // a terminal that is gone stops nothing
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
