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
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// bucket is a folder of a bucket, or one object, at a provider of object storage.
// Whom the provider lets read is what its own programs go by: environment and files
// of this machine's user; unless credentials are given, which count instead.
type bucket struct {
	address *url.URL
	prefix  string // of the objects' keys; ends with a slash unless it is empty
	via     *noting
	store   provider
	given   fetchapi.Credentials

	opened  *blob.Bucket
	objects []object // the files, in the order in which they are listed
}

// object is one that is a file of the model.
type object struct {
	key  string
	tag  string // by which the provider tells one content from another; may be empty
	time time.Time
	file fetchapi.File
}

// provider is one of object storage.
type provider struct {
	remedy string // where its library takes a credential from
	open   func(ctx context.Context, name string, via *noting, given fetchapi.Credentials) (*blob.Bucket, error)
	tag    func(o *blob.ListObject) string
	header string // in which an answer has the tag of what it sends
	// exactly has a read fail where the object has another tag by now.
	exactly func(as func(any) bool, tag string)
}

func newBucket(u *url.URL, o Options, store provider) (Source, error) {
	if u.Host == "" {
		return nil, invalid("the address %q names no bucket; it is as %s://bucket/folder", u, u.Scheme)
	}
	if o.Token != "" {
		return nil, invalid("a token is for https and the hub: %s", store.remedy)
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
		return nil, reasonf(fetchapi.ReasonNotFound, "there is no object below %s, and none of that name", &address)
	}
	h := sha256.New()
	var files []fetchapi.File
	for _, o := range s.objects {
		files = append(files, o.file)
		fmt.Fprintf(h, "%q %d %q\n", o.file.Path, o.file.Size, cmp.Or(o.tag, o.time.UTC().Format(time.RFC3339Nano)))
	}
	return &fetchapi.Manifest{URI: strings.TrimSuffix(address.String(), "/"), Revision: hex.EncodeToString(h.Sum(nil)), Files: files}, nil
}

// dropFolders leaves out objects without bytes that stand for a folder below which
// others are, as Azure lists those of an account with a hierarchical namespace.
func (s *bucket) dropFolders() {
	folders := map[string]bool{}
	for _, o := range s.objects {
		for above := path.Dir(o.file.Path); above != "." && above != "/" && !folders[above]; above = path.Dir(above) {
			folders[above] = true
		}
	}
	s.objects = slices.DeleteFunc(s.objects, func(o object) bool { return o.file.Size == 0 && folders[o.file.Path] })
}

// list notes the objects below a folder, whose name ends with a slash, or the one of
// exactly that name.
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
		if !folder && o.Key != prefix { // a neighbour; the one that is looked for would come before it
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

// trusting calls a library that trusts servers to leave nothing out of their answers,
// and panics where one does.
func trusting[T any](call func() (T, error)) (given T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = invalid("the source does not answer as a bucket: %v", p)
		}
	}()
	return call()
}

// bare is a tag as lists and headers have it in common.
func bare(tag string) string { return strings.Trim(strings.TrimPrefix(tag, "W/"), `"`) }

func (s *bucket) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	ctx, call := newCall(ctx, s.store.remedy)
	o := s.objects[n]
	r, err := trusting(func() (*blob.Reader, error) {
		return s.opened.NewRangeReader(ctx, o.key, offset, -1, &blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
			if o.tag != "" {
				s.store.exactly(as, o.tag)
			}
			return nil
		}})
	})
	if err != nil {
		if code := gcerrors.Code(err); code == gcerrors.FailedPrecondition || code == gcerrors.NotFound || call.last().status == http.StatusPreconditionFailed {
			return nil, ErrChanged
		}
		return nil, call.error(ctx, err)
	}
	stream := &Stream{ReadCloser: reading{r, ctx, call}, Offset: offset, Size: r.Size()}
	answer := call.last()
	sent := bare(answer.header.Get(s.store.header))
	first, _, _ := contentRange(answer.header.Get("Content-Range"))
	partial := answer.status == http.StatusPartialContent
	switch {
	case sent != "" && o.tag != "" && sent != bare(o.tag): // the server does not heed which one is asked for
		return nil, errors.Join(ErrChanged, stream.Close())
	case partial && first != offset:
		return nil, errors.Join(invalid("the source was asked for the bytes from %d on and answers with %q", offset, answer.header.Get("Content-Range")), stream.Close())
	case offset > 0 && !partial: // the server knows no parts, and the library no size
		stream.Offset, stream.Size = 0, -1
	case stream.Size != o.file.Size:
		return nil, errors.Join(ErrChanged, stream.Close())
	}
	return stream, nil
}
