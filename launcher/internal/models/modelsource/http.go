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
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// caller asks servers by HTTP.
type caller struct {
	client *http.Client
	stall  time.Duration
	remedy string // where the credential is taken from
}

// newCaller makes one whose credential goes to the origin of address, and to nobody
// else, wherever that may redirect to.
func newCaller(address *url.URL, o Options) *caller {
	transport := &http.Transport{ // HTTP/1.1: HTTP/2 has all streams on one connection, and takes more of the processor
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: o.Stall}).DialContext,
		TLSHandshakeTimeout:   o.Stall,
		ResponseHeaderTimeout: o.Stall,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   16,
		DisableCompression:    true, // sizes and hashes are of what is sent
	}
	return &caller{stall: o.Stall, remedy: o.remedy("a token that may read it is named by --token-file or, of the hub, is in HF_TOKEN"), client: &http.Client{
		Transport:     &credential{base: transport, origin: origin(address), token: o.Token},
		CheckRedirect: redirected,
	}}
}

// redirected lets a client go where a server sends it, but never from what is
// encrypted to what is not, and to another origin without the request's credential.
func redirected(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "https" && req.URL.Scheme != "http" {
		return invalid("%s redirects to an address that begins with %q, which is not of the web", via[0].URL.Host, req.URL.Scheme)
	}
	if req.URL.Scheme != "https" && via[0].URL.Scheme == "https" {
		return invalid("%s redirects to %s, which is not encrypted", via[0].URL.Host, req.URL.Host)
	}
	if len(via) > 10 {
		return invalid("%s redirects again and again", via[0].URL.Host)
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

// encrypted wants https of every host but this machine.
func encrypted(u *url.URL) error {
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) {
		return nil
	}
	return invalid("the address %s://%s is not encrypted; it is as https://%s", u.Scheme, u.Host, u.Host)
}

// do asks, and gives the answer when its status is one of the wanted. The body has to
// be closed.
func (c *caller) do(ctx context.Context, address string, header http.Header, wanted ...int) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(c.stall, func() { cancel(errSilent) })
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		cancel(nil)
		return nil, invalid("cannot ask %s: %v", address, err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "hotseat-modelfetch")
	resp, err := c.client.Do(req)
	if err != nil {
		watch.Stop()
		err = netError(ctx, err)
		cancel(nil)
		return nil, err
	}
	watch.Stop()
	resp.Body = &watched{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, watch: watch, stall: c.stall, left: c.stall}
	for _, status := range wanted {
		if resp.StatusCode == status {
			return resp, nil
		}
	}
	defer resp.Body.Close()
	return nil, statusError(resp.StatusCode, resp.Header, req.URL, c.remedy)
}

var errSilent = errors.New("nothing came for too long")

// netError is one of the connection. Another try may do without it, unless what is
// wrong is the certificate.
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
		return reasonf(fetchapi.ReasonUnavailable, "the source is not who it should be: %v", err)
	}
	return &TemporaryError{Cause: reasonf(fetchapi.ReasonUnavailable, "the source does not answer: %v", err)}
}

// watched is a body that is cut when next to nothing comes for too long.
type watched struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // that of the request whose answer this is
	cancel context.CancelCauseFunc
	watch  *time.Timer
	stall  time.Duration

	left time.Duration // that reading may take until something has come
	came int           // since left was all of stall
}

// something is how many bytes have to come while the source may be silent.
const something = 1 << 10

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
			Cause: reasonf(fetchapi.ReasonUnavailable, "the source did not answer as it should: %s", what),
			After: retryAfter(header.Get("Retry-After"), time.Now()),
		}
	}
	return reasonf(fetchapi.ReasonInvalid, "the source did not answer as it should: %s", what)
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

// open reads a file from offset on. tag, when there is one, is how the server names
// what was seen before: ErrChanged when the server names it otherwise now.
func (c *caller) open(ctx context.Context, address string, offset int64, tag string) (*Stream, error) {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		if tag != "" {
			header.Set("If-Range", tag)
		}
	}
	resp, err := c.do(ctx, address, header, http.StatusOK, http.StatusPartialContent)
	if err != nil {
		return nil, err
	}
	// A part that was asked for by If-Range is of what was seen, and need not say so.
	if now := tagOf(resp.Header); tag != "" && now != tag && (now != "" || resp.StatusCode == http.StatusOK) {
		return nil, errors.Join(ErrChanged, resp.Body.Close())
	}
	if resp.StatusCode == http.StatusOK {
		return &Stream{ReadCloser: resp.Body, Size: resp.ContentLength}, nil
	}
	first, size, ok := contentRange(resp.Header.Get("Content-Range"))
	if !ok || first != offset {
		_ = resp.Body.Close()
		return nil, reasonf(fetchapi.ReasonInvalid, "the source was asked for the bytes from %d on and answers with %q", offset, resp.Header.Get("Content-Range"))
	}
	return &Stream{ReadCloser: resp.Body, Offset: first, Size: size}, nil
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

// tagOf is how a server names what it sends, as If-Range takes it: never by a weak
// ETag.
func tagOf(h http.Header) string {
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) {
		return tag
	}
	return h.Get("Last-Modified")
}

// maxAnswer bounds what is read of a list of files.
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
