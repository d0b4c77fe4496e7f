// Modelfetch fetches one model into a folder, and reports to its parent by lines of JSON;
// see spec/fetchapi. The launcher runs it for each fetch, so that credentials and the
// libraries of clouds stay out of the launcher.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // for images that have no certificates of authorities, as our own
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/models/fetch"
	"hotseat.dev/hotseat/launcher/internal/models/modelsource"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

func main() {
	signal.Ignore(syscall.SIGPIPE)                                  // if the parent has ended, modelfetch still keeps the bytes that it has received
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // a program that is a source must not inherit the store's lock
	if len(os.Args) > 1 && os.Args[1] == "pull" {
		os.Exit(pull(os.Args[2:]))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &program{out: json.NewEncoder(os.Stdout), answers: make(chan fetchapi.Line, 1)}
	if err := p.parse(os.Args[1:]); err != nil {
		os.Exit(2) // the flag package has said why
	}
	go p.listen(os.Stdin, cancel)
	if err := p.run(ctx); err != nil {
		p.fail(err)
		os.Exit(1)
	}
}

// program is one call.
type program struct {
	uri       string
	source    modelsource.Options
	selection modelref.Selection
	fetch     fetch.Options
	tokenFile string
	given     bool // credentials come with the first line

	answerTries int // how often the source is asked what the model consists of; 0: as often as for a file

	saying  sync.Mutex // files are fetched side by side
	out     *json.Encoder
	answers chan fetchapi.Line
}

func (p *program) parse(args []string) error {
	p.source.Programs = map[string]string{}
	flags := flag.NewFlagSet("modelfetch", flag.ContinueOnError)
	flags.IntVar(&p.fetch.Streams, "streams", 8, "how many files are fetched at once")
	flags.IntVar(&p.fetch.BytesPerSecond, "bytes-per-second", 0, "limit for all streams together; 0: no limit")
	flags.IntVar(&p.fetch.Tries, "tries", 6, "how often in a row a file may fail without progress")
	flags.IntVar(&p.answerTries, "answer-tries", 0, "how often the source is asked what the model consists of; 0: as --tries says")
	flags.DurationVar(&p.fetch.Backoff, "backoff", time.Second, "pause before the second try; it grows")
	flags.DurationVar(&p.fetch.MaxWait, "max-wait", 5*time.Minute, "the longest pause that a source may ask for")
	flags.DurationVar(&p.source.Stall, "stall-timeout", 30*time.Second, "how long a source may be silent")
	flags.StringVar(&p.tokenFile, "token-file", "", "file with the credential for the source's host")
	for name, list := range map[string]*[]string{"include": &p.selection.Include, "exclude": &p.selection.Exclude} {
		flags.Func(name, "pattern of files to "+name+"; may be given more than once", func(pattern string) error {
			*list = append(*list, pattern)
			return nil
		})
	}
	flags.Func(fetchapi.ProgramFlag, "SCHEME=PROGRAM: the program that is the source of a scheme, see spec/fetchapi; may be given more than once", func(text string) error {
		scheme, path, err := fetchapi.ParseProgram(text)
		if err != nil {
			return err
		}
		p.source.Programs[scheme] = path
		return nil
	})
	where := claims{}
	p.source.Claims = where
	flags.Func("claim", claimUsage, where.set)
	flags.BoolVar(&p.given, "credentials", false, "use the credentials in the first line of standard input, and none of this machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p.uri = flags.Arg(0)
	if p.given && p.tokenFile != "" {
		err := errors.New("cannot use --token-file together with --credentials: give one of them")
		fmt.Fprintln(flags.Output(), err)
		return err
	}
	if flags.NArg() != 1 || p.fetch.Streams < 1 || p.fetch.Tries < 1 || p.fetch.BytesPerSecond < 0 || p.source.Stall <= 0 {
		err := errors.New("usage: modelfetch [flags] URI; --streams and --tries are at least 1, --bytes-per-second at least 0, --stall-timeout above 0")
		fmt.Fprintln(flags.Output(), err)
		return err
	}
	return nil
}

var errParentGone = errors.New("the parent process has ended")

// listen reads the parent's answers until the parent ends.
func (p *program) listen(in io.Reader, cancel context.CancelCauseFunc) {
	defer cancel(errParentGone)
	lines := bufio.NewReader(in)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var line fetchapi.Line
		if json.Unmarshal(text, &line) != nil {
			return
		}
		select {
		case p.answers <- line:
		default: // nothing was asked
			return
		}
	}
}

// credential sets the credential for the source: the parent's, or the token of the file.
// Without either, the hub gets the token that its own client would take.
func (p *program) credential(ctx context.Context) error {
	p.source.HubEndpoint = os.Getenv("HF_ENDPOINT")
	if p.given {
		line, err := p.await(ctx)
		if err != nil {
			return err
		}
		p.source.Credentials, err = line.Credentials.For(p.uri)
		if err != nil {
			return &fetchapi.Error{Reason: fetchapi.ReasonInvalid, Detail: "cannot use the credentials: " + err.Error()}
		}
		return nil
	}
	if p.tokenFile != "" {
		text, err := os.ReadFile(p.tokenFile)
		if err != nil {
			return &fetchapi.Error{Reason: fetchapi.ReasonInvalid, Detail: fmt.Sprintf("cannot read the file of --token-file: %v", err)}
		}
		p.source.Token = strings.TrimSpace(string(text))
	} else if strings.HasPrefix(p.uri, modelref.HubScheme) {
		p.source.Token = strings.TrimSpace(os.Getenv("HF_TOKEN"))
	}
	return nil
}

// changes is how often a source may change while it is fetched.
const changes = 3

func (p *program) run(ctx context.Context) error {
	if err := p.credential(ctx); err != nil {
		return err
	}
	if err := p.selection.Check(); err != nil {
		return &fetchapi.Error{Reason: fetchapi.ReasonInvalid, Detail: err.Error()}
	}
	p.fetch.Note = func(text string) { p.say(fetchapi.Line{Type: fetchapi.TypeNote, Text: text}) }
	p.source.Note = p.fetch.Note
	source, err := modelsource.New(p.uri, p.source)
	if err != nil {
		return err
	}
	p.fetch.Source = modelsource.Select(source, p.selection.Clean(), p.fetch.Note)
	for n := 1; ; n++ {
		err := p.once(ctx)
		if !errors.Is(err, modelsource.ErrChanged) || n == changes {
			return err
		}
		p.fetch.Note(err.Error() + "; fetching it again")
	}
}

// once resolves the model and fetches it.
func (p *program) once(ctx context.Context) error {
	manifest, err := p.resolve(ctx)
	if err != nil {
		return err
	}
	if err := manifest.Check(); err != nil {
		return &fetchapi.Error{Reason: fetchapi.ReasonInvalid, Detail: err.Error()}
	}
	p.say(fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: manifest})
	answer, err := p.await(ctx)
	if err != nil {
		return err
	}
	o := p.fetch
	o.Manifest, o.Staging, o.Have, o.MustProve = manifest, answer.Staging, answer.Have, answer.MustProve
	if (manifest.Revision == "" || !p.fetch.Source.Resumes()) && answer.Staging != "" { // the parts may be of another version
		if err := fetch.DropParts(o.Staging); err != nil {
			return err
		}
	}
	f := fetch.New(o)
	if answer.Type == fetchapi.TypeProve {
		if err := f.Prove(ctx); err != nil {
			return err
		}
		p.say(fetchapi.Line{Type: fetchapi.TypeProved})
		return nil
	}
	stop := p.report(f, manifest.Bytes())
	whole, err := f.Run(ctx)
	stop()
	if err != nil {
		return err
	}
	if whole.Revision == "" {
		whole.Revision = "sha256-" + whole.Files[0].SHA256
	}
	p.say(fetchapi.Line{Type: fetchapi.TypeDone, Manifest: whole})
	return nil
}

// await returns the parent's next line.
func (p *program) await(ctx context.Context) (fetchapi.Line, error) {
	select {
	case line := <-p.answers:
		return line, nil
	case <-ctx.Done():
		return fetchapi.Line{}, context.Cause(ctx)
	}
}

// resolve asks the source, and asks again if another try may help.
func (p *program) resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	for tries := 1; ; tries++ {
		manifest, err := p.fetch.Source.Resolve(ctx)
		temporary, ok := errors.AsType[*modelsource.TemporaryError](err)
		if !ok || tries >= cmp.Or(p.answerTries, p.fetch.Tries) {
			return manifest, err
		}
		if err := p.fetch.Wait(ctx, p.uri, tries, temporary); err != nil {
			return nil, err
		}
	}
}

// report writes the progress at intervals until it is stopped, and once more then.
func (p *program) report(f *fetch.Fetch, total int64) (stop func()) {
	tell := func() {
		fetched, network := f.Progress()
		p.say(fetchapi.Line{Type: fetchapi.TypeProgress, FetchedBytes: fetched, NetworkBytes: network, TotalBytes: total})
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tell()
			case <-end:
				tell()
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// say writes a line. It ignores errors: when the parent ends, the standard input ends too.
func (p *program) say(line fetchapi.Line) {
	p.saying.Lock()
	defer p.saying.Unlock()
	_ = p.out.Encode(line)
}

func (p *program) fail(err error) {
	told, ok := errors.AsType[*fetchapi.Error](err)
	reason := fetchapi.ReasonInternal
	if ok {
		reason = told.Reason
	}
	if errors.Is(err, modelsource.ErrChanged) {
		reason = fetchapi.ReasonUnavailable
	}
	p.say(fetchapi.Line{Type: fetchapi.TypeError, Error: &fetchapi.Error{Reason: reason, Detail: strings.ReplaceAll(err.Error(), "\n", "; ")}})
}
