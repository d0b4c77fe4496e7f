package modelsource

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/smithy-go"
	"golang.org/x/oauth2"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// call is one call of a provider's library, which may ask servers several times. It
// records the servers' answers: each library's errors report them in another way, and
// some not at all.
type call struct {
	remedy  string // where the provider's credential is taken from
	bounded bool   // the answers are a list or a manifest, and not a file

	mu       sync.Mutex
	answered answer // the last one
	broken   error  // why a body broke off; after that, nothing is asked
	came     int    // bytes of answers that are no file
}

// maxListing bounds the bytes of all answers to one call that are no file. Libraries keep
// them in memory. The bound is more than two KiB for each of fetchapi.MaxFiles.
const maxListing = 256 << 20

type answer struct {
	status int // 0: there was none
	header http.Header
	asked  *url.URL
}

type callKey struct{}

func newCall(ctx context.Context, remedy string) (context.Context, *call) {
	c := &call{remedy: remedy}
	return context.WithValue(ctx, callKey{}, c), c
}

func (c *call) last() answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

func (c *call) note(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = a
}

// take counts bytes of answers that are no file.
func (c *call) take(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.came += n; c.came > maxListing {
		return invalid("the source answers a list or a manifest with more than the limit of %d bytes", maxListing)
	}
	return nil
}

func (c *call) breakOff(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err
}

func (c *call) brokenOff() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// error returns the error to report for a failed call.
func (c *call) error(ctx context.Context, err error) error {
	if broken := c.brokenOff(); broken != nil {
		return netError(ctx, broken)
	}
	if e, ok := errors.AsType[*TemporaryError](err); ok { // the source did not answer
		return e
	}
	if e, ok := errors.AsType[*fetchapi.Error](err); ok { // the source was not asked
		return e
	}
	if a := c.last(); a.status >= 300 {
		return c.refusal(a, wordOf(err))
	}
	if noCredential(err) {
		return reasonf(fetchapi.ReasonAccessDenied, "there is no usable credential for the source: %v; %s", innermost(err), c.remedy)
	}
	return netError(ctx, err)
}

// refusal returns the error for an answer with an unexpected status. word is the
// provider's own word for what is wrong; it may be empty.
func (c *call) refusal(a answer, word string) error {
	said := ""
	if word != "" {
		said = " (" + word + ")"
	}
	e := statusError(a.status, a.header, a.asked, c.remedy)
	region := a.header.Get("X-Amz-Bucket-Region")
	switch told, _ := errors.AsType[*fetchapi.Error](e); {
	case region != "" && (a.status < 400 || a.status == http.StatusBadRequest):
		return reasonf(told.Reason, "%s%s; the bucket is in the region %s: set AWS_REGION", told.Detail, said, region)
	case word == "ResourceNotFound": // Azure answers so to clients that may not know whether it exists
		return reasonf(told.Reason, "%s%s, or the credential may not see it; %s", told.Detail, said, c.remedy)
	case told.Reason == fetchapi.ReasonAccessDenied || refusing[word]:
		return reasonf(fetchapi.ReasonAccessDenied, "the source refuses access: %s answers %d %s%s; %s", a.asked.Host, a.status, http.StatusText(a.status), said, c.remedy)
	case a.status == http.StatusBadRequest: // some servers answer so to a request with a wrong signature, or without any
		return reasonf(told.Reason, "%s%s; %s", told.Detail, said, c.remedy)
	case told.Reason == fetchapi.ReasonInvalid:
		return reasonf(told.Reason, "%s%s", told.Detail, said)
	}
	return e
}

// refusing are the words of S3 and Azure for a missing or refused credential that come
// with another status than 401 or 403.
var refusing = map[string]bool{"ExpiredToken": true, "InvalidToken": true, "TokenRefreshRequired": true, "PublicAccessNotPermitted": true}

// wordOf returns the provider's own word for what is wrong, such as NoSuchBucket.
func wordOf(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok && e.ErrorCode() != "UnknownError" {
		return e.ErrorCode()
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.ErrorCode
	}
	return ""
}

// noCredential reports whether the library did not get a credential, and so did not ask
// the source.
func noCredential(err error) bool {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return e.Response != nil && e.Response.StatusCode < 500
	}
	_, ok := errors.AsType[interface { // of azidentity, which has none or was refused one
		error
		NonRetriable()
	}](err)
	return ok
}

// innermost returns the innermost error, without what libraries put around it, such as
// addresses.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// noting asks servers and records their answers for each call. It cuts an answer off if
// next to nothing comes for too long. After a body broke off, it asks nothing more for
// that call: modelfetch itself counts the tries, and waits between them.
type noting struct {
	base  func(*http.Request) (*http.Response, error)
	stall time.Duration
}

// newNoting returns a noting that reaches servers as the other sources do.
func newNoting(stall time.Duration) *noting {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // sizes and hashes are of what is sent
	transport.MaxIdleConnsPerHost = 16
	return &noting{transport.RoundTrip, stall}
}

// Do asks, and follows no redirect.
func (t *noting) Do(req *http.Request) (*http.Response, error) { return t.RoundTrip(req) }

// RoundTrip implements [http.RoundTripper].
func (t *noting) RoundTrip(req *http.Request) (*http.Response, error) {
	c, noted := req.Context().Value(callKey{}).(*call)
	if noted {
		if err := c.brokenOff(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	watch := time.AfterFunc(t.stall, func() { cancel(errSilent) })
	req = req.Clone(ctx)
	if req.Header.Get(acceptEncoding) == "" {
		req.Header.Set(acceptEncoding, identity)
	}
	resp, err := t.base(req)
	watch.Stop()
	if err != nil {
		err = netError(ctx, err)
		cancel(nil)
		return nil, err
	}
	body := &watched{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, watch: watch, stall: t.stall, left: t.stall}
	resp.Body = body
	if noted {
		resp.Body = &notedBody{body, c, c.bounded || resp.StatusCode >= 300}
		c.note(answer{resp.StatusCode, resp.Header, req.URL})
	}
	return resp, nil
}

// notedBody tells its call when it breaks off.
type notedBody struct {
	io.ReadCloser
	call    *call
	bounded bool
}

func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.bounded {
		if over := b.call.take(n); over != nil {
			n, err = 0, over
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.call.breakOff(err)
	}
	return n, err
}

// reading is a body that a library returns. If it breaks off, the error is that of any
// other source.
type reading struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // that of the request whose answer this is
	call *call
}

func (r reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		if broken := r.call.brokenOff(); broken != nil {
			err = broken
		}
		err = netError(r.ctx, err)
	}
	return n, err
}

// Close closes the body. If the body broke off, Read has returned the error already.
func (r reading) Close() error {
	if err := r.ReadCloser.Close(); r.call.brokenOff() == nil {
		return err
	}
	return nil
}
