// Package door answers the requests of clients: it reads which Model each is for, holds it while no Pod serves
// that Model, and passes it on.
package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/access"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/launcher/inference"
)

// Bounds of requests.
const (
	mostJSON = 32 << 20 // a chat may have pictures
	mostForm = 1 << 30  // of speech; only what stands before the model is held
	// heldWhole is the size up to which the body of a request is read as a whole, before it waits. A client that hangs
	// up is noticed then, and the request can be sent again.
	heldWhole = mostJSON
	// mostHeldBytes bounds what the bodies of all requests take.
	mostHeldBytes = 256 << 20
	// mostAttempts bounds how many Pods a request is passed to.
	mostAttempts = 3
	// unknownWait is Retry-After for a Model whose starts have not been seen yet.
	unknownWait = 10 * time.Second
)

// Peers tells of the requests at other front doors.
type Peers interface {
	Of(model types.NamespacedName) (demand.Count, bool)
}

// Observer counts what a Door does.
type Observer interface {
	// Answered is told of each request: its Model, zero if there is none; the entry whose replica answered, empty if
	// none did; and the status code, codeClientGone if the client hung up.
	Answered(model types.NamespacedName, entry string, code int)
	Held(model types.NamespacedName, outcome string, waited time.Duration)
	Retried(model types.NamespacedName)
	Chosen(strategy string)
	Forget(model types.NamespacedName) // it is gone
}

// codeClientGone is the status code of requests whose client hung up. No client gets it.
const codeClientGone = 499

// Options of a Door.
type Options struct {
	Own   *demand.Own
	Peers Peers
	// Namespace returns the namespace whose Models a host name stands for.
	Namespace func(host string) string
	Access    *access.Tokens
	Transport http.RoundTripper // to the Pods
	SignEvery time.Duration     // between two signs of life for a stream that waits
	BodyTime  time.Duration     // for a body; 0: as long as bodyTime
	Observer  Observer
	Tracer    trace.Tracer // nil: there are no traces
	Logger    *slog.Logger
}

// Door is the handler of clients' requests.
type Door struct {
	opts    Options
	dir     *directory.Directory
	memory  *inference.Memory
	proxy   *httputil.ReverseProxy
	queues  *queues
	outages *outages
	starts  inference.Predictor

	choosing sync.Mutex // held until the chosen Pod counts the request
}

// New returns a Door, and the Directory that whoever watches Models and Pods fills.
func New(o Options) (*Door, *directory.Directory) {
	d := &Door{opts: o, memory: inference.NewMemory(mostHeldBytes)}
	d.dir = directory.New(func(model types.NamespacedName) {
		if !d.dir.Has(model) {
			d.opts.Observer.Forget(model)
			d.starts.Forget(model.String())
		}
		d.queues.kick(model)
	})
	d.outages = newOutages(time.Now)
	d.queues = newQueues(d.mayPass, d.refusesToHold)
	d.proxy = &httputil.ReverseProxy{
		Rewrite: d.rewrite, ModifyResponse: answered, Transport: passer{d}, BufferPool: &buffers{}, ErrorHandler: failed,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return d, d.dir
}

// Close refuses the requests that wait, and those that come.
func (d *Door) Close() { d.queues.close() }

// ServeHTTP answers a request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	inference.SetRequestID(w, r)
	inference.AllowReading(w.Header(), r)
	if inference.IsPreflight(r) { // browsers send no token with it
		inference.AnswerPreflight(w, r, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost)
		return
	}
	grant, ok := d.opts.Access.Of(r)
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	err := error(nil)
	switch {
	case !ok:
		w.Header().Set("WWW-Authenticate", "Bearer")
		err = &inference.Error{Status: http.StatusUnauthorized, Message: "a token is missing or unknown: send one as Authorization: Bearer TOKEN, or as x-api-key"}
	case read && (r.URL.Path == modelsPath || strings.HasPrefix(r.URL.Path, modelsPath+"/")):
		err = d.showModels(w, r, grant)
	case featureOf(r) != nil:
		d.answer(w, r, grant)
		return
	default:
		err = inference.NotServed(r)
	}
	if e := (*inference.Error)(nil); errors.As(err, &e) {
		inference.WriteError(w, r, e)
	}
}

// answer answers a request for a Model.
func (d *Door) answer(w http.ResponseWriter, r *http.Request, grant access.Grant) {
	q := &request{r: r, grant: grant, signs: inference.Signs{Writer: w, Request: r, Interval: d.opts.SignEvery}}
	d.trace(q)
	code := 0 // that is counted
	defer func() {
		d.close(q)
		code = cmp.Or(code, codeOfCut(q))
		d.opts.Observer.Answered(d.seriesOf(q), q.entry, code)
		q.endTrace(code)
	}()
	err := d.read(q)
	if err == nil {
		err = d.await(q)
	}
	if err == nil {
		err = d.pass(q)
	}
	if err == nil {
		code = q.status
		return
	}
	e := (*inference.Error)(nil)
	if !errors.As(err, &e) {
		e = &inference.Error{Status: http.StatusBadGateway, Message: err.Error()}
	}
	slow := e.Status == http.StatusRequestTimeout // which has ended the context, though the client is there
	if errors.Is(err, errClientGone) || r.Context().Err() != nil && !slow {
		panic(http.ErrAbortHandler)
	}
	code = e.Status
	if slow {
		w.Header().Set("Connection", "close")
	}
	q.signs.Fail(e)
}

// seriesOf returns the Model for which a request counts in metrics; zero: there is none, or it has been deleted.
func (d *Door) seriesOf(q *request) types.NamespacedName {
	if q.model == nil || !d.dir.Has(q.model.Key) {
		return types.NamespacedName{}
	}
	return q.model.Key
}

// codeOfCut returns the code that counts for an answer that was cut.
func codeOfCut(q *request) int {
	if q.brokeOff && q.r.Context().Err() == nil {
		return http.StatusBadGateway
	}
	return codeClientGone
}

// pass passes a request on to a Pod, which the proxy's transport chooses.
func (d *Door) pass(q *request) error {
	// The transport alone reads the body: the proxy would wait for a read of it to end.
	passed := q.r.WithContext(context.WithValue(q.r.Context(), requestKey{}, q))
	passed.Body = http.NoBody
	for {
		q.failure = nil
		var err error
		if q.signs.Began() {
			err = inference.Continue(q.signs.Writer, d.proxy, passed)
		} else {
			d.proxy.ServeHTTP(q.signs.Writer, passed)
		}
		if errors.Is(q.failure, errSigned) {
			continue
		}
		if q.failure != nil {
			return q.failure
		}
		return err
	}
}

// requestKey is the key of a request in the context of what the proxy sends.
type requestKey struct{}

// rewrite leaves the address to the transport. The proxy has removed what belongs to one connection, but for a wish
// for another protocol, which no path has.
func (d *Door) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = "http", p.In.Host
	p.Out.Host = ""
	p.SetXForwarded()
	for _, name := range []string{"Connection", "Upgrade", "Expect"} {
		p.Out.Header.Del(name)
	}
	if d.opts.Access.Required() {
		access.Remove(p.Out.Header)
	}
}

// answered leaves it to the engine who may read its answer.
func answered(answer *http.Response) error {
	q := answer.Request.Context().Value(requestKey{}).(*request)
	inference.ForgetReading(q.signs.Writer.Header())
	return nil
}

// failed keeps why nothing was answered. answer tells the client.
func failed(_ http.ResponseWriter, r *http.Request, err error) {
	r.Context().Value(requestKey{}).(*request).failure = err
}

// buffers are what answers are copied through.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if of, ok := b.pool.Get().(*[]byte); ok {
		return *of
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(of []byte) { b.pool.Put(&of) }

// among returns which Models a request may be for, by its header X-Label-Selector.
func among(r *http.Request) (labels.Selector, error) {
	text := r.Header.Get("X-Label-Selector")
	if text == "" {
		return labels.Everything(), nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, &inference.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("X-Label-Selector is no label selector such as team=a: %v", err), Param: "X-Label-Selector"}
	}
	return selector, nil
}
