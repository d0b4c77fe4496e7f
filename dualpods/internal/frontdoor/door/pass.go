package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/balance"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

var (
	errClientGone    = errors.New("the client has hung up")
	errWaitedTooLong = errors.New("the request waited too long")
	// errSigned says that signs of life were written while a request was passed on: what follows must continue them.
	errSigned = errors.New("signs of life were written")
)

// load returns the requests for a Model at all front doors.
func (d *Door) load(m *directory.Model) demand.Count {
	count := d.opts.Own.Of(m.Key)
	others, _ := d.opts.Peers.Of(m.Key)
	count.Add(others)
	return count
}

// mayPass returns 0 if a Pod may answer a request now, and otherwise after how long one may that is passed over
// now; a negative time: none.
func (d *Door) mayPass(q *request) time.Duration {
	_, again := d.eligible(q)
	return again
}

// eligible returns the Pods that may answer a request. Pods that have failed are passed over for a while, and
// standbys unless nothing else serves. again is as that of mayPass.
func (d *Door) eligible(q *request) (may []directory.Endpoint, again time.Duration) {
	again = -1
	for _, e := range d.dir.Serving(q.model.Key) {
		left := d.outages.left(outageOf(q, &e))
		switch {
		case left > 0 && (again < 0 || left < again):
			again = left
		case left == 0:
			may = append(may, e)
		}
	}
	if len(q.tried) > 0 {
		if fresh := slices.DeleteFunc(slices.Clone(may), func(e directory.Endpoint) bool { return slices.Contains(q.tried, e.Pod) }); len(fresh) > 0 {
			may = fresh
		}
	}
	if slices.ContainsFunc(may, func(e directory.Endpoint) bool { return e.Weight > 0 }) {
		may = slices.DeleteFunc(may, func(e directory.Endpoint) bool { return e.Weight == 0 })
	}
	if len(may) > 0 {
		return may, 0
	}
	return nil, again
}

// outageOf names a Pod with a Model. A seat that fails for one Model may have another one soon.
func outageOf(q *request, e *directory.Endpoint) string {
	return q.model.Key.String() + " " + e.Address
}

// await returns when a Pod may answer a request.
func (d *Door) await(q *request) error {
	if err := d.queues.pass(q); err != nil || q.turn == nil {
		return err
	}
	others, _ := d.opts.Peers.Of(q.model.Key)
	if !q.counted.Hold(q.model.MaxHeld, others.Held) {
		return d.refuseFull(q.model)
	}
	since := time.Now()
	starts := q.turn.first && len(d.dir.Serving(q.model.Key)) == 0
	ctx, cancel := context.WithTimeoutCause(q.r.Context(), q.model.Hold-q.waited, errWaitedTooLong)
	defer cancel()
	q.signs.Request = q.r.WithContext(ctx)
	span := d.part(q, "hold")
	q.hold.begin(span, since, len(d.dir.Serving(q.model.Key)) == 0)
	err := q.signs.Wait(q.turn.ready, func() string { return "no replica serves " + q.model.Key.Name + " yet" })
	q.signs.Request = q.r
	waited := time.Since(since)
	q.waited += waited
	q.hold.to = time.Now()
	if err == nil {
		err = d.queues.refusal(q.turn)
	} else {
		err = d.gaveUp(ctx, q)
	}
	endPart(span, err)
	d.opts.Observer.Held(d.seriesOf(q), outcomeOf(err), waited)
	if err == nil && starts {
		d.starts.Observe(q.model.Key.String(), inference.Start, waited)
	}
	return err
}

// gaveUp returns why a request does not wait any longer.
func (d *Door) gaveUp(waiting context.Context, q *request) error {
	if !errors.Is(context.Cause(waiting), errWaitedTooLong) {
		return errClientGone
	}
	return &inference.Error{
		Status: http.StatusServiceUnavailable, RetryAfter: d.retryAfter(q.model, q.waited),
		Message: fmt.Sprintf("the request waited for %s, and no replica serves %s yet: the status of the Model says why", q.model.Hold, q.model.Key.Name),
	}
}

// The outcomes of requests that waited.
const (
	heldPassed     = "passed"
	heldRefused    = "refused"
	heldClientGone = "client_gone"
)

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return heldPassed
	case errors.Is(err, errClientGone):
		return heldClientGone
	}
	return heldRefused
}

// passer is the transport of the proxy: it chooses the Pod, and tries another one if that fails before it has
// answered.
type passer struct{ d *Door }

// RoundTrip passes a request on.
func (p passer) RoundTrip(out *http.Request) (*http.Response, error) {
	d, q := p.d, out.Context().Value(requestKey{}).(*request)
	for {
		to, ok := d.choose(q)
		if !ok { // the last Pod went meanwhile
			signed := q.signs.Began()
			if err := d.await(q); err != nil {
				return nil, err
			}
			if q.signs.Began() && !signed {
				return nil, errSigned
			}
			continue
		}
		answer, err := d.send(q, out, to)
		if err == nil {
			return answer, nil
		}
		again, mistake := q.abandon()
		switch {
		case mistake != nil: // the Pod is not to blame
			return nil, mistake
		case out.Context().Err() != nil:
			return nil, errClientGone
		}
		d.outages.failed(outageOf(q, &to))
		d.opts.Observer.Retried(d.seriesOf(q))
		q.tried = append(q.tried, to.Pod)
		d.opts.Logger.Info("a Pod does not answer", "model", q.model.Key.String(), "pod", to.Pod, "attempt", len(q.tried), "error", err)
		if len(q.tried) == mostAttempts || !again {
			return nil, &inference.Error{Status: http.StatusBadGateway, Message: fmt.Sprintf("%d replicas of %s failed to answer; the last one: %v", len(q.tried), q.model.Key.Name, err)}
		}
	}
}

// choose chooses the Pod for a request, which counts there from now on.
func (d *Door) choose(q *request) (directory.Endpoint, bool) {
	may, _ := d.eligible(q)
	if len(may) == 0 {
		return directory.Endpoint{}, false
	}
	strategy := v1alpha1.LeastLoad
	if q.model.ByPrefix {
		strategy = v1alpha1.StrategyPrefixHash
	}
	d.opts.Observer.Chosen(strategy)
	span := d.part(q, "choose")
	defer span.End()
	of := make([]balance.Endpoint, len(may))
	for i, e := range may {
		of[i] = balance.Endpoint{Name: e.Pod, Weight: e.Weight}
	}
	d.choosing.Lock() // until it counts, so that requests that come together are spread
	defer d.choosing.Unlock()
	load := d.load(q.model)
	for i := range of {
		of[i].Load = load.InFlight[of[i].Name]
	}
	at := 0
	if q.model.ByPrefix {
		at = d.dir.Ring(q.model.Key).Choose(q.prefix, of, q.model.MeanLoadPercentage)
	} else {
		at = balance.LeastLoad(of)
	}
	q.counted.Enter(may[at].Pod)
	q.noteChoice(span, may[at], strategy)
	d.showActuation(q, &may[at])
	return may[at], true
}

// send sends a request to a Pod.
func (d *Door) send(q *request, out *http.Request, to directory.Endpoint) (answer *http.Response, err error) {
	span := d.part(q, "proxy", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("k8s.pod.name", to.Pod)))
	defer func() { endPart(span, err) }()
	// The next request in the queue follows once this one is under way. The transport may say so late, when the
	// request has another turn.
	turn := q.turn
	var wrote atomic.Bool
	written := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		wrote.Store(info.Err == nil)
		if info.Err == nil {
			d.queues.leave(turn)
		}
	}}
	if !q.whole {
		written.WroteHeaders = func() { d.queues.leave(turn) }
	}
	sent := q.forPod(httptrace.WithClientTrace(out.Context(), written), out, to.Address)
	passTrace(span, sent)
	answer, err = d.opts.Transport.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	if err := refusal(answer); err != nil {
		_ = answer.Body.Close() // nothing of it counts
		return nil, err
	}
	d.queues.leave(turn)
	if q.whole && wrote.Load() {
		q.forget()
	}
	d.outages.answered(outageOf(q, &to))
	q.entry, q.status = to.Entry, answer.StatusCode
	answer.Body = &counted{answer.Body, q}
	return answer, nil
}

// refusal returns an error for an answer that does not come from an engine.
func refusal(answer *http.Response) error {
	reason := answer.Header.Get(launcherapi.HeaderRefused)
	switch {
	case reason != "" && answer.StatusCode == http.StatusServiceUnavailable:
		return fmt.Errorf("its launcher refused the request: %s", reason)
	case answer.StatusCode == http.StatusSwitchingProtocols:
		return errors.New("it answered with another protocol, for which nobody asked")
	}
	return nil
}

// forPod returns what is sent to a Pod.
func (q *request) forPod(ctx context.Context, out *http.Request, address string) *http.Request {
	sent := out.WithContext(ctx)
	to := *out.URL
	to.Host = address
	sent.URL = &to
	sent.TransferEncoding, sent.Trailer = nil, nil
	sent.Body, sent.ContentLength = q.next(), q.body.Length()
	// The transport sends again what it could not write to a connection that the Pod had closed. With these headers it
	// would also do so after it has written everything.
	if q.whole && out.Header.Get("Idempotency-Key") == "" && out.Header.Get("X-Idempotency-Key") == "" {
		sent.GetBody = func() (io.ReadCloser, error) { return q.next(), nil }
	}
	return sent
}

// counted is the body of an answer. Its request counts until it is closed.
type counted struct {
	io.ReadCloser

	q *request
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.q.brokeOff = true
	}
	return n, err
}

func (c *counted) Close() error {
	defer c.q.counted.Leave()
	return c.ReadCloser.Close()
}
