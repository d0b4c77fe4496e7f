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
	"sync/atomic"
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
	stall   time.Duration
	store   provider

	opened *blob.Bucket
	keys   []string // of the files, in their order
	tags   []string // by which the provider tells one content of an object from another
	files  []fetchapi.File
}

// provider is one of object storage.
type provider struct {
	open func(ctx context.Context, name string, stall time.Duration) (*blob.Bucket, error)
	tag  func(o *blob.ListObject) string
	// exactly has a read fail where the object has another tag by now.
	exactly func(as func(any) bool, tag string) error
}

func newBucket(u *url.URL, o Options, store provider) (Source, error) {
	if u.Host == "" {
		return nil, invalid("the address %q names no bucket; it is as %s://bucket/folder", u, u.Scheme)
	}
	return &bucket{address: u, prefix: strings.Trim(u.Path, "/"), stall: o.Stall, store: store}, nil
}

func (s *bucket) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	if s.opened == nil {
		opened, err := s.store.open(ctx, s.address.Host, s.stall)
		if err != nil {
			return nil, reasonf(fetchapi.ReasonInvalid, "cannot open %s://%s: %v", s.address.Scheme, s.address.Host, err)
		}
		s.opened = opened
	}
	s.keys, s.tags, s.files = nil, nil, nil
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
		fmt.Fprintf(h, "%q %d %q\n", f.Path, f.Size, s.tags[n])
	}
	return &fetchapi.Manifest{URI: strings.TrimSuffix(address.String(), "/"), Revision: hex.EncodeToString(h.Sum(nil)), Files: s.files}, nil
}

// list notes the objects below a folder, whose name ends with a slash, or the one of
// exactly that name.
func (s *bucket) list(ctx context.Context, prefix string) error {
	folder := prefix == "" || strings.HasSuffix(prefix, "/")
	ctx, last := withLast(ctx)
	for objects := s.opened.List(&blob.ListOptions{Prefix: prefix}); ; {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return last.error(ctx, err)
		}
		if strings.HasSuffix(o.Key, "/") && o.Size == 0 || !folder && o.Key != prefix { // what stands for a folder; and its neighbours
			continue
		}
		if len(s.files) > fetchapi.MaxFiles {
			return invalid("%s has more than %d objects", s.address, fetchapi.MaxFiles)
		}
		name := strings.TrimPrefix(o.Key, prefix)
		if !folder {
			name = path.Base(o.Key)
		}
		s.keys = append(s.keys, o.Key)
		s.tags = append(s.tags, cmp.Or(s.store.tag(o), o.ModTime.UTC().Format(time.RFC3339Nano)))
		s.files = append(s.files, fetchapi.File{Path: name, Size: o.Size})
		if !folder {
			return nil
		}
	}
}

func (s *bucket) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	ctx, last := withLast(ctx)
	r, err := s.opened.NewRangeReader(ctx, s.keys[n], offset, -1, &blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
		return s.store.exactly(as, s.tags[n])
	}})
	if err != nil {
		if code := gcerrors.Code(err); code == gcerrors.FailedPrecondition || code == gcerrors.NotFound || last.status() == http.StatusPreconditionFailed {
			return nil, ErrChanged
		}
		return nil, last.error(ctx, err)
	}
	if r.Size() != s.files[n].Size {
		return nil, errors.Join(ErrChanged, r.Close())
	}
	return &Stream{ReadCloser: reading{r, ctx}, Offset: offset, Size: r.Size()}, nil
}

// reading tells what breaks a body off as any source does.
type reading struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // that of the request whose answer this is
}

func (r reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = netError(r.ctx, err)
	}
	return n, err
}

// last is how a provider answered last, by HTTP: its own library's errors say it each
// in another way.
type last struct{ answer atomic.Pointer[answer] }

type answer struct {
	status int
	header http.Header
	asked  *url.URL
}

type lastKey struct{}

func withLast(ctx context.Context) (context.Context, *last) {
	l := &last{}
	return context.WithValue(ctx, lastKey{}, l), l
}

func (l *last) status() int {
	if a := l.answer.Load(); a != nil {
		return a.status
	}
	return 0
}

// error is what a failed call means.
func (l *last) error(ctx context.Context, err error) error {
	if a := l.answer.Load(); a != nil && a.status >= 300 {
		e := statusError(a.status, a.header, a.asked)
		if refused, ok := errors.AsType[*fetchapi.Error](e); ok && refused.Reason == fetchapi.ReasonAccessDenied {
			return reasonf(fetchapi.ReasonAccessDenied, "the source refuses access: %s %d; give the credential as the provider's own programs take it, such as in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", a.asked.Host, a.status)
		}
		return e
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		return reasonf(fetchapi.ReasonNotFound, "the source does not have this: %v", err)
	case gcerrors.PermissionDenied:
		return reasonf(fetchapi.ReasonAccessDenied, "the source refuses access: %v", err)
	default:
		return netError(ctx, err)
	}
}

// noting notes how each request was answered, for whom it was made, and cuts off
// answers of which next to nothing comes for too long.
type noting struct {
	base  func(*http.Request) (*http.Response, error)
	stall time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (t *noting) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	watch := time.AfterFunc(t.stall, func() { cancel(errSilent) })
	resp, err := t.base(req.WithContext(ctx))
	if err != nil {
		watch.Stop()
		err = errors.Join(err, context.Cause(ctx))
		cancel(nil)
		return nil, err
	}
	if l, ok := req.Context().Value(lastKey{}).(*last); ok {
		l.answer.Store(&answer{resp.StatusCode, resp.Header, req.URL})
	}
	resp.Body = &watched{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, watch: watch, stall: t.stall, left: t.stall}
	return resp, nil
}

// providers are those of object storage, by their schemes.
var providers = map[string]provider{"azblob": azure, "gs": gcs, "s3": s3Storage}
