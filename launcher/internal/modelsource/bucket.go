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
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// bucket is a folder of a bucket, or one object, at a provider of object storage.
// Whom the provider lets read is what its own programs go by: environment and files
// of this machine's user.
type bucket struct {
	address *url.URL
	prefix  string // of the objects' keys; ends with a slash unless it is empty
	via     *noting
	store   provider

	opened *blob.Bucket
	keys   []string // of the files, in their order
	tags   []string // by which the provider tells one content of an object from another; may be empty
	times  []time.Time
	files  []fetchapi.File
}

// provider is one of object storage.
type provider struct {
	remedy string // where its library takes a credential from
	open   func(ctx context.Context, name string, via *noting) (*blob.Bucket, error)
	tag    func(o *blob.ListObject) string
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
	return &bucket{address: u, prefix: prefix, via: newNoting(o.Stall), store: store}, nil
}

func (s *bucket) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	if s.opened == nil {
		opened, err := s.store.open(ctx, s.address.Host, s.via)
		if e, ok := errors.AsType[*fetchapi.Error](err); ok {
			return nil, e
		}
		if err != nil {
			return nil, invalid("cannot open %s://%s: %v; %s", s.address.Scheme, s.address.Host, err, s.store.remedy)
		}
		s.opened = opened
	}
	s.keys, s.tags, s.times, s.files = nil, nil, nil, nil
	folder := s.prefix + "/"
	if s.prefix == "" {
		folder = ""
	}
	if err := s.list(ctx, folder); err != nil {
		return nil, err
	}
	if len(s.files) == 0 && folder != "" { // an address may be that of one object
		if err := s.list(ctx, s.prefix); err != nil {
			return nil, err
		}
	}
	address := url.URL{Scheme: s.address.Scheme, Host: s.address.Host, Path: path.Join("/", s.prefix)}
	if len(s.files) == 0 {
		return nil, reasonf(fetchapi.ReasonNotFound, "there is no object below %s, and none of that name", &address)
	}
	h := sha256.New()
	for n, f := range s.files {
		fmt.Fprintf(h, "%q %d %q\n", f.Path, f.Size, cmp.Or(s.tags[n], s.times[n].UTC().Format(time.RFC3339Nano)))
	}
	return &fetchapi.Manifest{URI: strings.TrimSuffix(address.String(), "/"), Revision: hex.EncodeToString(h.Sum(nil)), Files: s.files}, nil
}

// list notes the objects below a folder, whose name ends with a slash, or the one of
// exactly that name.
func (s *bucket) list(ctx context.Context, prefix string) error {
	folder := prefix == "" || strings.HasSuffix(prefix, "/")
	ctx, call := newCall(ctx, s.store.remedy)
	listed := 0
	for objects := s.opened.List(&blob.ListOptions{Prefix: prefix}); ; {
		o, err := objects.Next(ctx)
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
		s.keys = append(s.keys, o.Key)
		s.tags = append(s.tags, s.store.tag(o))
		s.times = append(s.times, o.ModTime)
		s.files = append(s.files, fetchapi.File{Path: name, Size: o.Size})
		if !folder {
			return nil
		}
	}
}

func (s *bucket) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	ctx, call := newCall(ctx, s.store.remedy)
	r, err := s.opened.NewRangeReader(ctx, s.keys[n], offset, -1, &blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
		if s.tags[n] != "" {
			s.store.exactly(as, s.tags[n])
		}
		return nil
	}})
	if err != nil {
		if code := gcerrors.Code(err); code == gcerrors.FailedPrecondition || code == gcerrors.NotFound || call.last().status == http.StatusPreconditionFailed {
			return nil, ErrChanged
		}
		return nil, call.error(ctx, err)
	}
	stream := &Stream{ReadCloser: reading{r, ctx, call}, Offset: offset, Size: r.Size()}
	switch {
	case offset > 0 && call.last().status != http.StatusPartialContent: // the server knows no parts, and the library no size
		stream.Offset, stream.Size = 0, -1
	case stream.Size != s.files[n].Size:
		return nil, errors.Join(ErrChanged, stream.Close())
	}
	return stream, nil
}
