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

// call is one of a provider's library, which may ask servers several times. What the
// servers answer is noted here: each library's errors say it in another way, and some
// not at all.
type call struct {
	remedy  string // where the provider's credential is taken from
	bounded bool   // the answers are a list or a manifest, and not a file

	mu       sync.Mutex
	answered answer // the last one
	broken   error  // what broke a body off: from then on nothing is asked
	came     int    // bytes of answers that are no file
}

// maxListing bounds what is read of the answers to one call that are no file, which
// libraries keep in memory: more than two KiB for each of fetchapi.MaxFiles.
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
		return invalid("the source answers with more than %d bytes that are not of a file", maxListing)
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

// error is what a failed call means.
func (c *call) error(ctx context.Context, err error) error {
	if broken := c.brokenOff(); broken != nil {
		return netError(ctx, broken)
	}
	if e, ok := errors.AsType[*TemporaryError](err); ok { // there was no answer
		return e
	}
	if e, ok := errors.AsType[*fetchapi.Error](err); ok { // nobody was asked
		return e
	}
	if a := c.last(); a.status >= 300 {
		return c.refusal(a, wordOf(err))
	}
	if noCredential(err) {
		return reasonf(fetchapi.ReasonAccessDenied, "there is no credential for the source that is taken: %v; %s", innermost(err), c.remedy)
	}
	return netError(ctx, err)
}

// refusal is what an answer means that is not what was asked for. word is the
// provider's own for it; it may be empty.
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
	case word == "ResourceNotFound": // so Azure answers whoever may not know whether it is there
		return reasonf(told.Reason, "%s%s, or it may not be seen; %s", told.Detail, said, c.remedy)
	case told.Reason == fetchapi.ReasonAccessDenied || refusing[word]:
		return reasonf(fetchapi.ReasonAccessDenied, "the source refuses access: %s answers %d %s%s; %s", a.asked.Host, a.status, http.StatusText(a.status), said, c.remedy)
	case a.status == http.StatusBadRequest: // some say so of what is signed in another way, or not at all
		return reasonf(told.Reason, "%s%s; %s", told.Detail, said, c.remedy)
	case told.Reason == fetchapi.ReasonInvalid:
		return reasonf(told.Reason, "%s%s", told.Detail, said)
	}
	return e
}

// refusing are the words of S3 and Azure for a credential that is refused, or is
// missing, with another status than that.
var refusing = map[string]bool{"ExpiredToken": true, "InvalidToken": true, "TokenRefreshRequired": true, "PublicAccessNotPermitted": true}

// wordOf is the provider's own word for what is wrong, such as NoSuchBucket.
func wordOf(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok && e.ErrorCode() != "UnknownError" {
		return e.ErrorCode()
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.ErrorCode
	}
	return ""
}

// noCredential says whether the library has not come so far as to ask the source,
// since whoever gives the credentials refuses them.
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

// innermost leaves out what the libraries put around it, such as addresses.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// noting asks servers, notes for each call how they answer, and cuts answers off of
// which next to nothing comes for too long. Nothing is asked again for a call whose
// body broke off: modelfetch itself waits between two tries, and counts them.
type noting struct {
	base  func(*http.Request) (*http.Response, error)
	stall time.Duration
}

// newNoting makes one that reaches servers as the existing sources do.
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
	resp, err := t.base(req.WithContext(ctx))
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

// reading is a body as a library gives it, which tells by what it was broken off as
// any source does.
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

// Close closes the body. What broke it off has been told.
func (r reading) Close() error {
	if err := r.ReadCloser.Close(); r.call.brokenOff() == nil {
		return err
	}
	return nil
}
