// Package fetch brings the files of a model from its source into a folder: hashed as
// they stream, synced now and then, and resumed where an earlier try broke off.
//
//	HASH            a file, whole and synced
//	part-NAME       a file, as far as it has come; NAME is a hash of its path
//	part-NAME.note  how many of its bytes are surely on the disk
//	hashes          of the whole files, where the manifest does not say them
package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelsource"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
)

// Options are those of a fetch.
type Options struct {
	Source   modelsource.Source
	Manifest *fetchapi.Manifest
	Staging  string
	Have     []string // hashes of files that need not be fetched
	// MustProve says that the source must let this process read, before a file that is here
	// is taken: another one may have fetched it.
	MustProve bool

	Streams        int           // files that are fetched at once
	BytesPerSecond int           // of all streams together; 0: as fast as it goes
	Tries          int           // how often in succession a file may fail without progress
	Backoff        time.Duration // before the second try; it grows
	MaxWait        time.Duration // the longest that a source may ask to wait

	Note func(text string) // what people may want to know
}

// Chunk is how many bytes of a file may have been written and not be noted, and so how
// many may have to be fetched twice.
const Chunk = 16 << 20

// finishing is how many files may wait for the disk to take their last bytes, and not
// keep a stream.
const finishing = 12

// progress is how many bytes a try has to bring for the next to count as the first:
// a source that is cut off again and again after a few is given up.
const progress = 64 << 10

// Fetch is one on its way.
type Fetch struct {
	Options
	in       *os.Root // the staging folder: nothing outside it is changed, whatever links are put into it
	limiter  *rate.Limiter
	streams  chan struct{} // as many as are busy
	released chan []byte   // buffers that wait for their next use
	left     leftovers
	hashes   *os.File // nil: the manifest says all
	landing  *landing

	fetched, network atomic.Int64
}

// New makes a fetch; Run runs it.
func New(o Options) *Fetch {
	f := &Fetch{Options: o, streams: make(chan struct{}, max(1, o.Streams)), released: make(chan []byte, ahead*max(1, o.Streams))}
	if o.BytesPerSecond > 0 {
		f.limiter = rate.NewLimiter(rate.Limit(o.BytesPerSecond), f.bufferSize())
	}
	return f
}

// Progress is how many bytes of the model are here, and how many this process has
// received.
func (f *Fetch) Progress() (fetched, network int64) { return f.fetched.Load(), f.network.Load() }

func (f *Fetch) bufferSize() int {
	const most = 128 << 10
	if f.BytesPerSecond <= 0 {
		return most
	}
	return min(most, max(4096, f.BytesPerSecond/20))
}

// Run fetches what is missing, and gives the manifest with the hash of each file.
func (f *Fetch) Run(ctx context.Context) (whole *fetchapi.Manifest, err error) {
	if f.in, err = openStaging(f.Staging); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.in.Close()) }()
	if f.left, err = f.look(); err != nil {
		return nil, err
	}
	if f.MustProve {
		if err := f.prove(ctx, f.here); err != nil {
			return nil, err
		}
	}
	if err := f.openHashes(); err != nil {
		return nil, modelstore.NoRoom(f.Staging, err)
	}
	defer func() {
		if f.hashes != nil {
			err = errors.Join(err, f.hashes.Close())
		}
	}()
	if f.landing, err = land(f.in); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.landing.close()) }()
	whole, err = f.files(ctx)
	if err := errors.Join(err, f.landing.rest()); err != nil { // also what came before something went wrong
		return nil, modelstore.NoRoom(f.Staging, err)
	}
	return whole, nil
}

// files fetches the files that are missing, some at a time. Goroutines that fetch one
// after the other have stacks that have grown once.
func (f *Fetch) files(ctx context.Context) (*fetchapi.Manifest, error) {
	whole := *f.Manifest
	whole.Files = slices.Clone(whole.Files)
	missing := f.missing()
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(len(missing), cap(f.streams)+finishing) {
		group.Go(func() (err error) {
			for err == nil {
				i := int(next.Add(1)) - 1
				if i >= len(missing) {
					return nil
				}
				n := missing[i]
				whole.Files[n].SHA256, err = f.file(ctx, n)
			}
			return err
		})
	}
	return &whole, group.Wait()
}

// missing are the files that are to be fetched, of several with one hash the first.
func (f *Fetch) missing() (all []int) {
	taken := map[string]bool{}
	for _, hash := range f.Have {
		taken[hash] = true
	}
	for n, file := range f.Manifest.Files {
		if taken[file.SHA256] {
			f.fetched.Add(file.Size)
			continue
		}
		if file.SHA256 != "" {
			taken[file.SHA256] = true
		}
		all = append(all, n)
	}
	return all
}

func (f *Fetch) part(n int) *part {
	file := f.Manifest.Files[n]
	name := partName(file.Path)
	return &part{f: f, n: n, file: file, name: name}
}

// here says whether nothing of a file needs to be read at the source.
func (f *Fetch) here(n int) bool {
	p := f.part(n)
	return slices.Contains(f.Have, p.file.SHA256) || p.finished() != "" || f.left.names[p.name] && p.noted() == p.file.Size
}

// Prove has the source show that it lets read the model.
func (f *Fetch) Prove(ctx context.Context) error {
	return f.prove(ctx, func(int) bool { return true })
}

// prove opens the largest of some files at its last byte. That the source says what
// the model consists of proves nothing: the hub tells that of a gated model to anybody
// (https://github.com/huggingface/huggingface.js/issues/945).
func (f *Fetch) prove(ctx context.Context, of func(n int) bool) error {
	largest := -1
	for n, file := range f.Manifest.Files {
		if file.Size > 0 && (largest < 0 || file.Size > f.Manifest.Files[largest].Size) && of(n) {
			largest = n
		}
	}
	if largest < 0 {
		return nil
	}
	file := f.Manifest.Files[largest]
	for tries := 1; ; tries++ {
		stream, err := f.Source.Open(ctx, largest, file.Size-1)
		if err == nil {
			_ = stream.Close() // nothing of it is needed
			return nil
		}
		temporary, ok := errors.AsType[*modelsource.TemporaryError](err)
		if !ok || ctx.Err() != nil || tries >= f.Tries {
			return err
		}
		if err := f.Wait(ctx, file.Path, tries, temporary); err != nil {
			return err
		}
	}
}

// file fetches one file.
func (f *Fetch) file(ctx context.Context, n int) (hash string, err error) {
	p := f.part(n)
	if hash := p.finished(); hash != "" {
		f.fetched.Add(p.file.Size)
		return hash, nil
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for {
		if err := f.stream(ctx, p); err != nil {
			return "", errors.Join(err, p.sync())
		}
		again := p.resumed
		err := p.finish()
		if err == nil || !again || !isMismatch(err) {
			return p.whole, err
		}
		f.Note(fmt.Sprintf("%s: %v; the part from an earlier try is fetched again", p.file.Path, err))
	}
}

// stream receives the rest of a file, in as many tries as it takes, once one of the
// streams is free.
func (f *Fetch) stream(ctx context.Context, p *part) error {
	select {
	case f.streams <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-f.streams }()
	if err := p.open(); err != nil {
		return err
	}
	for tries := 0; ; {
		before := p.offset
		err := p.receive(ctx)
		temporary, ok := errors.AsType[*modelsource.TemporaryError](err)
		if !ok || ctx.Err() != nil {
			return err
		}
		if p.offset-before >= progress {
			tries = 0
		}
		if tries++; tries >= f.Tries {
			return fmt.Errorf("cannot fetch %s, after %d tries: %w", p.file.Path, tries, err)
		}
		if err := f.Wait(ctx, p.file.Path, tries, temporary); err != nil {
			return err
		}
	}
}

// partName does not depend on the order in which a source lists its files.
func partName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return "part-" + hex.EncodeToString(sum[:8])
}

func isMismatch(err error) bool {
	e, ok := errors.AsType[*fetchapi.Error](err)
	return ok && e.Reason == fetchapi.ReasonIntegrityMismatch
}

// Wait waits before another try: as long as the source asks for, else longer each
// time.
func (f *Options) Wait(ctx context.Context, path string, tries int, because *modelsource.TemporaryError) error {
	pause := f.Backoff << min(tries-1, 6)
	if because.After > 0 {
		pause = because.After
	}
	if pause > f.MaxWait {
		if because.After > 0 {
			return fmt.Errorf("the source asks to wait for %s, longer than the limit of %s: %w", pause, f.MaxWait, because)
		}
		pause = f.MaxWait
	}
	f.Note(fmt.Sprintf("%s: %v; trying again in %s", path, because, pause))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func size(n int64) string { return launcher.ExactBytesText(uint64(max(0, n))) }
