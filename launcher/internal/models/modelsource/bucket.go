package modelsource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// bucket is a folder of a bucket, or one object, at a provider of object storage. It uses
// the credentials that are given. Without any, it uses those that the provider's own
// programs find in the environment and the files of this machine's user.
type bucket struct {
	address *url.URL
	prefix  string // of the objects' keys; ends with a slash unless it is empty
	via     *noting
	store   provider
	given   fetchapi.Credentials

	opened  *blob.Bucket
	objects []object    // the files, in the order in which they are listed
	foreign atomic.Bool // its answers have other tags than its lists, of the same object
}

// object is one that is a file of the model.
type object struct {
	key  string
	tag  string // differs for different contents of the object; may be empty
	time time.Time
	file fetchapi.File
}

// strong reports whether the tag names this version of the object and no other.
func (o *object) strong() bool { return o.tag != "" && !strings.HasPrefix(o.tag, "W/") }

// provider is one of object storage.
type provider struct {
	remedy string // where its library takes a credential from
	open   func(ctx context.Context, name string, via *noting, given fetchapi.Credentials) (*blob.Bucket, error)
	tag    func(o *blob.ListObject) string
	header string // the header of an answer that has the object's tag
	// exactly makes a read fail if the object has another tag by now.
	exactly func(as func(any) bool, tag string)
}

func newBucket(u *url.URL, o Options, store provider) (Source, error) {
	if u.Host == "" {
		return nil, invalid("the address %q names no bucket; write it as %s://bucket/folder", u, u.Scheme)
	}
	if o.Token != "" {
		return nil, invalid("a token can be used only for https and the hub; %s", store.remedy)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := fetchapi.CheckPath(prefix); err != nil {
			return nil, invalid("the address %q names no folder of a bucket: %v", u, err)
		}
	}
	store.remedy = o.remedy(store.remedy)
	return &bucket{address: u, prefix: prefix, via: newNoting(o.Stall), store: store, given: o.Credentials}, nil
}

func (s *bucket) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	if s.opened == nil {
		opened, err := s.store.open(ctx, s.address.Host, s.via, s.given)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if e, ok := errors.AsType[*fetchapi.Error](err); ok {
			return nil, e
		}
		if err != nil {
			return nil, invalid("cannot open %s://%s: %v; %s", s.address.Scheme, s.address.Host, err, s.store.remedy)
		}
		s.opened = opened
	}
	s.objects = nil
	folder := s.prefix + "/"
	if s.prefix == "" {
		folder = ""
	}
	if err := s.list(ctx, folder); err != nil {
		return nil, err
	}
	s.dropFolders()
	if len(s.objects) == 0 && folder != "" { // an address may be that of one object
		if err := s.list(ctx, s.prefix); err != nil {
			return nil, err
		}
	}
	address := url.URL{Scheme: s.address.Scheme, Host: s.address.Host, Path: path.Join("/", s.prefix)}
	if len(s.objects) == 0 {
		return nil, reasonf(fetchapi.ReasonNotFound, "there is no object named %s, and none below it", &address)
	}
	h := sha256.New()
	var files []fetchapi.File
	for _, o := range s.objects {
		files = append(files, o.file)
		fmt.Fprintf(h, "%q %d %q\n", o.file.Path, o.file.Size, cmp.Or(o.tag, o.time.UTC().Format(time.RFC3339Nano)))
	}
	return &fetchapi.Manifest{URI: strings.TrimSuffix(address.String(), "/"), Revision: hex.EncodeToString(h.Sum(nil)), Files: files}, nil
}

// dropFolders leaves out empty objects that stand for a folder with other objects below
// it. Azure lists them for an account with a hierarchical namespace.
func (s *bucket) dropFolders() {
	folders := map[string]bool{}
	for _, o := range s.objects {
		for above := path.Dir(o.file.Path); above != "." && above != "/" && !folders[above]; above = path.Dir(above) {
			folders[above] = true
		}
	}
	s.objects = slices.DeleteFunc(s.objects, func(o object) bool { return o.file.Size == 0 && folders[o.file.Path] })
}

// list adds the objects below a folder to s.objects. If the name does not end with a
// slash, list adds the object of exactly that name.
func (s *bucket) list(ctx context.Context, prefix string) error {
	folder := prefix == "" || strings.HasSuffix(prefix, "/")
	ctx, call := newCall(ctx, s.store.remedy)
	call.bounded = true
	listed := 0
	for objects := s.opened.List(&blob.ListOptions{Prefix: prefix}); ; {
		o, err := trusting(func() (*blob.ListObject, error) { return objects.Next(ctx) })
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return call.error(ctx, err)
		}
		if listed++; listed > fetchapi.MaxFiles {
			return invalid("%s has more than %d objects", s.address, fetchapi.MaxFiles)
		}
		if !folder && o.Key != prefix { // another object; the one that is looked for would come before it
			return nil
		}
		if strings.HasSuffix(o.Key, "/") && o.Size == 0 { // it stands for a folder
			continue
		}
		name := strings.TrimPrefix(o.Key, prefix)
		if !folder {
			name = path.Base(o.Key)
		}
		s.objects = append(s.objects, object{o.Key, s.store.tag(o), o.ModTime, fetchapi.File{Path: name, Size: o.Size}})
		if !folder {
			return nil
		}
	}
}

// trusting calls a library that panics if a server leaves a field out of its answer, and
// turns the panic into an error.
func trusting[T any](call func() (T, error)) (given T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = invalid("the source does not answer like a bucket: %v", p)
		}
	}()
	return call()
}

// bare is a tag as lists and headers have it in common.
func bare(tag string) string { return strings.Trim(strings.TrimPrefix(tag, "W/"), `"`) }

// Open opens an object. Some servers have other tags in their lists than in their answers: if
// an object seems to have changed and the list still has it as before, its time and its size
// are compared.
func (s *bucket) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	stream, err := s.open(ctx, n, offset)
	if !errors.Is(err, ErrChanged) || s.foreign.Load() || !s.objects[n].strong() {
		return stream, err
	}
	same, err := s.isListed(ctx, s.objects[n])
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, ErrChanged
	}
	s.foreign.Store(true)
	return s.open(ctx, n, offset)
}

// isListed reports whether the list has an object as it was.
func (s *bucket) isListed(ctx context.Context, o object) (bool, error) {
	ctx, call := newCall(ctx, s.store.remedy)
	call.bounded = true
	objects := s.opened.List(&blob.ListOptions{Prefix: o.key})
	now, err := trusting(func() (*blob.ListObject, error) { return objects.Next(ctx) }) // the one of just that name comes first
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, call.error(ctx, err)
	}
	return now.Key == o.key && now.Size == o.file.Size && now.ModTime.Equal(o.time) && s.store.tag(now) == o.tag, nil
}

// seemsOther reports whether an answer is of another version of an object than the list.
func (s *bucket) seemsOther(o *object, h http.Header) bool {
	if !s.foreign.Load() {
		sent := bare(h.Get(s.store.header))
		return sent != "" && o.tag != "" && sent != bare(o.tag)
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	return err == nil && !modified.Equal(o.time.Truncate(time.Second))
}

// Resumes reports whether each object has a strong tag. Times name no version: some servers
// have them from files.
func (s *bucket) Resumes() bool {
	return !slices.ContainsFunc(s.objects, func(o object) bool { return !o.strong() })
}

// isPartOf reports whether an object that was opened at an offset is of the version that was
// listed; at 0 it is none that goes on. A server whose answers have other tags than its lists is
// asked for its list again.
func (s *bucket) isPartOf(ctx context.Context, o object, offset int64, exactly bool) (bool, error) {
	if offset == 0 || exactly || !o.strong() {
		return offset == 0 || exactly, nil
	}
	return s.isListed(ctx, o)
}

// beginsElsewhere reports whether a server cannot begin where it was asked to. Some libraries
// refuse the whole object that it sends then.
func (c *call) beginsElsewhere(err error, offset int64) bool {
	status := c.last().status
	return err != nil && offset > 0 && (status == http.StatusRequestedRangeNotSatisfiable || status == http.StatusOK)
}

// openError returns the error for an object that cannot be opened.
func (c *call) openError(ctx context.Context, err error) error {
	if code := gcerrors.Code(err); code == gcerrors.FailedPrecondition || code == gcerrors.NotFound || c.last().status == http.StatusPreconditionFailed {
		return ErrChanged
	}
	return c.error(ctx, err)
}

func (s *bucket) open(ctx context.Context, n int, offset int64) (*Stream, error) {
	ctx, call := newCall(ctx, s.store.remedy)
	o := s.objects[n]
	exactly := o.strong() && !s.foreign.Load()
	r, err := trusting(func() (*blob.Reader, error) {
		return s.opened.NewRangeReader(ctx, o.key, offset, -1, &blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
			if exactly {
				s.store.exactly(as, o.tag)
			}
			return nil
		}})
	})
	if call.beginsElsewhere(err, offset) {
		return s.open(ctx, n, 0)
	}
	if err != nil {
		return nil, call.openError(ctx, err)
	}
	stream := &Stream{ReadCloser: reading{r, ctx, call}, Offset: offset, Size: r.Size()}
	part, err := s.isPartOf(ctx, o, offset, exactly)
	answer := call.last()
	if err == nil && stream.Size != o.file.Size { // an object may have been stored with an encoding; then it has its size
		err = checkEncoding(answer.header, answer.asked)
	}
	if err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	first, _, _ := contentRange(answer.header.Get("Content-Range"))
	partial := answer.status == http.StatusPartialContent
	switch {
	case s.seemsOther(&o, answer.header): // the server ignores which version was asked for
		return nil, errors.Join(ErrChanged, stream.Close())
	case partial && (first != offset || !part): // the rest could be of another version
		_ = stream.Close()
		if offset > 0 {
			return s.open(ctx, n, 0)
		}
		return nil, wrongPart(offset, answer.header)
	case offset > 0 && !partial: // the server cannot send parts, and the library does not know the size
		stream.Offset, stream.Size = 0, -1
	case stream.Size >= 0 && stream.Size != o.file.Size:
		return nil, errors.Join(ErrChanged, stream.Close())
	}
	return stream, nil
}
