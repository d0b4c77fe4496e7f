package modelsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// caller asks servers by HTTP.
type caller struct {
	client *http.Client
	stall  time.Duration
	remedy string // what to do if the source refuses access
}

// newCaller returns a caller that sends its credential only to the origin of address, also
// after a redirect.
func newCaller(address *url.URL, o Options) *caller {
	transport := &http.Transport{ // HTTP/1.1: HTTP/2 puts all streams on one connection, and needs more processor time
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: o.Stall}).DialContext,
		TLSHandshakeTimeout:   o.Stall,
		ResponseHeaderTimeout: o.Stall,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   16,
		DisableCompression:    true, // sizes and hashes are of what is sent
	}
	return &caller{stall: o.Stall, remedy: o.remedy("give a token that may read it by --token-file or, for the hub, by HF_TOKEN"), client: &http.Client{
		Transport:     &credential{base: transport, origin: origin(address), token: o.Token},
		CheckRedirect: redirected,
	}}
}

// redirected allows a redirect, but not from an encrypted address to one that is not
// encrypted. On a redirect to another origin, it removes the credential.
func redirected(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "https" && req.URL.Scheme != "http" {
		return invalid("%s redirects to an address of the scheme %q; only http and https are allowed", via[0].URL.Host, req.URL.Scheme)
	}
	if req.URL.Scheme != "https" && via[0].URL.Scheme == "https" {
		return invalid("%s redirects to %s, which is not encrypted", via[0].URL.Host, req.URL.Host)
	}
	if len(via) > 10 {
		return invalid("%s redirects more than 10 times", via[0].URL.Host)
	}
	if origin(req.URL) != origin(via[0].URL) {
		req.Header.Del("Authorization")
		req.Header.Del("X-Amz-Security-Token")
	}
	return nil
}

// credential adds the token to requests to one origin.
type credential struct {
	base          http.RoundTripper
	origin, token string
}

func (c *credential) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.token != "" && origin(req.URL) == c.origin {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.base.RoundTrip(req)
}

func origin(u *url.URL) string { return strings.ToLower(u.Scheme + "://" + u.Host) }

// encrypted refuses an address that is not https, unless the host is this machine.
func encrypted(u *url.URL) error {
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) {
		return nil
	}
	return invalid("the address %s://%s is not encrypted; use https://%s", u.Scheme, u.Host, u.Host)
}

// do sends a request, and returns the answer if its status is a wanted one. The caller
// closes the body.
func (c *caller) do(ctx context.Context, address string, header http.Header, wanted ...int) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(c.stall, func() { cancel(errSilent) })
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		cancel(nil)
		return nil, invalid("cannot send a request to %s: %v", address, err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "hotseat-modelfetch")
	req.Header.Set(acceptEncoding, identity)
	resp, err := c.client.Do(req)
	if err != nil {
		watch.Stop()
		err = netError(ctx, err)
		cancel(nil)
		return nil, err
	}
	watch.Stop()
	resp.Body = &watched{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, watch: watch, stall: c.stall, left: c.stall}
	if slices.Contains(wanted, resp.StatusCode) {
		if err := checkEncoding(resp.Header, resp.Request.URL); err != nil {
			return nil, errors.Join(err, resp.Body.Close())
		}
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, statusError(resp.StatusCode, resp.Header, req.URL, c.remedy)
}

// Without the header Accept-Encoding, a proxy may compress what it sends
// (RFC 9110, 12.5.3); the compressed bytes would be taken for the file.
const (
	acceptEncoding = "Accept-Encoding"
	identity       = "identity"
)

// checkEncoding refuses an answer that is compressed all the same. Some servers say of a
// compressed file itself that it is.
func checkEncoding(header http.Header, asked *url.URL) error {
	is := strings.ToLower(header.Get("Content-Encoding"))
	if is == "" || is == identity || strings.HasSuffix(asked.Path, ".gz") || strings.HasSuffix(asked.Path, ".tgz") {
		return nil
	}
	return invalid("%s, or a proxy before it, sends the file encoded as %s although it was asked not to; have it sent as it is", asked.Host, is)
}

var errSilent = errors.New("the source sent nothing for too long, or next to nothing")

// netError returns the error for a failed connection. Another try may succeed, unless the
// certificate is wrong.
func netError(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*TemporaryError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*fetchapi.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok { // whose address may have a credential in its query
		err = e.Err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errSilent) {
		return cause
	} else if cause != nil {
		err = cause
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return reasonf(fetchapi.ReasonUnavailable, "cannot verify the certificate of the source: %v", err)
	}
	return &TemporaryError{Cause: reasonf(fetchapi.ReasonUnavailable, "the source does not answer: %v", err)}
}

// watched is a body that is cut off if next to nothing comes for too long.
type watched struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // that of the request whose answer this is
	cancel context.CancelCauseFunc
	watch  *time.Timer
	stall  time.Duration

	left time.Duration // that reading may take until something has come
	came int           // since left was all of stall
}

// something is how many bytes have to come while the source may be silent. A connection that
// crawls is given up, since another may be faster: the fetch resumes.
const something = 64 << 10

// Read counts the time that it waits for the source itself: a reader that takes its
// time does not have the source cut off.
func (w *watched) Read(p []byte) (int, error) {
	began := time.Now()
	w.watch.Reset(w.left)
	n, err := w.ReadCloser.Read(p)
	w.watch.Stop()
	w.left -= time.Since(began)
	if w.came += n; w.came >= something {
		w.left, w.came = w.stall, 0
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = netError(w.ctx, err)
	}
	return n, err
}

func (w *watched) Close() error {
	w.watch.Stop()
	w.cancel(nil)
	return w.ReadCloser.Close()
}

// statusError says what an answer means that is not the one that was asked for.
func statusError(code int, header http.Header, asked *url.URL, remedy string) error {
	said := header.Get("X-Error-Message") // the hub says why
	if said == "" {
		said = http.StatusText(code)
	}
	what := fmt.Sprintf("%s://%s%s: %d %s", asked.Scheme, asked.Host, asked.Path, code, said)
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return reasonf(fetchapi.ReasonAccessDenied, "the source refuses access: %s; %s", what, remedy)
	case code == http.StatusNotFound || code == http.StatusGone:
		return reasonf(fetchapi.ReasonNotFound, "the source does not have this: %s", what)
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		return &TemporaryError{
			Cause: reasonf(fetchapi.ReasonUnavailable, "the source gave an unexpected answer: %s", what),
			After: waitAsked(header, time.Now()),
		}
	}
	return reasonf(fetchapi.ReasonInvalid, "the source gave an unexpected answer: %s", what)
}

// waitAsked returns how long a server asks to wait: by Retry-After, or by what it says of its
// limits that are used up. The hub sends RateLimit: "api";r=0;t=55, which is
// draft-ietf-httpapi-ratelimit-headers; earlier drafts had RateLimit-Reset.
func waitAsked(h http.Header, now time.Time) time.Duration {
	if asked := retryAfter(h.Get("Retry-After"), now); asked > 0 {
		return asked
	}
	longest := retryAfter(h.Get("RateLimit-Reset"), now)
	for limit := range strings.SplitSeq(strings.Join(h.Values("RateLimit"), ","), ",") {
		left, reset := "", ""
		for parameter := range strings.SplitSeq(limit, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			switch name {
			case "r":
				left = value
			case "t":
				reset = value
			}
		}
		if left == "0" {
			longest = max(longest, retryAfter(reset, now))
		}
	}
	return longest
}

// retryAfter reads seconds or a time.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// open reads a file from offset on, or from the beginning if the server cannot begin there. If
// v names a version, it is what the server said of the file before; the error is ErrChanged if
// the server says something else now.
func (c *caller) open(ctx context.Context, address string, offset int64, v version) (*Stream, error) {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		if v.tag != "" {
			header.Set("If-Range", v.tag)
		}
	}
	wanted := []int{http.StatusOK, http.StatusPartialContent}
	if offset > 0 {
		wanted = append(wanted, http.StatusRequestedRangeNotSatisfiable)
	}
	resp, err := c.do(ctx, address, header, wanted...)
	if err != nil {
		return nil, err
	}
	same, told := v.compare(versionOf(resp.Header))
	if told && !same {
		return nil, errors.Join(ErrChanged, resp.Body.Close())
	}
	first, size, ok := contentRange(resp.Header.Get("Content-Range"))
	whole := resp.StatusCode == http.StatusOK
	switch {
	case whole && (told || !v.isNamed()):
		return &Stream{ReadCloser: resp.Body, Size: resp.ContentLength}, nil
	case resp.StatusCode == http.StatusPartialContent && ok && first == offset: // a partial answer to If-Range need not repeat the version
		return &Stream{ReadCloser: resp.Body, Offset: first, Size: size}, nil
	}
	_ = resp.Body.Close()
	switch {
	case offset > 0: // it cannot begin there, or an answer without the range may say more
		return c.open(ctx, address, 0, v)
	case whole:
		return nil, ErrChanged
	default:
		return nil, wrongPart(offset, resp.Header)
	}
}

// wrongPart is the error for another part of a file than the one that was asked for.
func wrongPart(offset int64, h http.Header) error {
	return invalid("the source was asked for the bytes from %d on, but answers with %q", offset, h.Get("Content-Range"))
}

// contentRange reads "bytes 5-9/10".
func contentRange(text string) (first, size int64, ok bool) {
	span, total, ok := strings.Cut(strings.TrimPrefix(text, "bytes "), "/")
	from, _, dash := strings.Cut(span, "-")
	first, err := strconv.ParseInt(from, 10, 64)
	size, bad := strconv.ParseInt(total, 10, 64)
	if bad != nil {
		size = -1
	}
	return first, size, ok && dash && err == nil
}

// version is what an answer says of the version of its file.
type version struct {
	tag  string // a strong ETag
	date string // Last-Modified
	old  bool   // the date is so old that the file will not change within its second
}

// dateAge is how old Last-Modified must be, by the clock of the server, to tell versions apart:
// it is in seconds, and the clocks of a server may differ (RFC 9110, 8.8.2.2).
const dateAge = time.Minute

func versionOf(h http.Header) version {
	v := version{date: h.Get("Last-Modified")}
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) {
		v.tag = tag
	}
	modified, err := http.ParseTime(v.date)
	answered, bad := http.ParseTime(h.Get("Date"))
	v.old = err == nil && bad == nil && answered.Sub(modified) >= dateAge
	return v
}

// revision returns what tells this version from others, as far as the server does; empty: it
// does not. A date may be that of another version, too: programs such as rsync -t and tar set
// it. So it shows which model is there, but no part is completed by it.
func (v version) revision() string {
	if v.tag == "" && v.old {
		return v.date
	}
	return v.tag
}

func (v version) isNamed() bool { return v.tag != "" || v.date != "" }

// compare reports whether two answers are of the same version; told is false if they do not
// tell.
func (v version) compare(now version) (same, told bool) {
	if v.tag != "" && now.tag != "" {
		return v.tag == now.tag, true
	}
	return v.date == now.date, v.date != "" && now.date != ""
}

// maxAnswer bounds the bytes of a list of files.
const maxAnswer = 64 << 20

// text reads a short answer whole.
func (c *caller) text(ctx context.Context, address string) ([]byte, error) {
	resp, err := c.do(ctx, address, nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxAnswer {
		return nil, invalid("the list of files at %s has more than %d bytes", address, maxAnswer)
	}
	return text, nil
}
