package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"time"

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

// eligible returns the Pods that may answer a request, with their loads. Pods that have failed are passed over for
// a while, and standbys unless nothing else serves. again is as that of mayPass.
func (d *Door) eligible(q *request) (may []directory.Endpoint, again time.Duration) {
	again = -1
	for _, e := range d.dir.Serving(q.model.Key) {
		left := d.outages.left(e.Address)
		switch {
		case left > 0 && (again < 0 || left < again):
			again = left
		case left == 0:
			may = append(may, e)
		}
	}
	if fresh := slices.DeleteFunc(slices.Clone(may), func(e directory.Endpoint) bool { return slices.Contains(q.tried, e.Pod) }); len(fresh) > 0 {
		may = fresh
	}
	if slices.ContainsFunc(may, func(e directory.Endpoint) bool { return e.Weight > 0 }) {
		may = slices.DeleteFunc(may, func(e directory.Endpoint) bool { return e.Weight == 0 })
	}
	if len(may) > 0 {
		return may, 0
	}
	return nil, again
}

// await returns when a Pod may answer a request.
func (d *Door) await(q *request) error {
	q.leaveQueue()
	var err error
	if q.turn, err = d.queues.pass(q); q.turn == nil {
		return err
	}
	if d.load(q.model).Held >= q.model.MaxHeld {
		return refuseFull(q.model.Key.Name, q.model.MaxHeld, d.retryAfter(q.model, 0))
	}
	release := d.opts.Own.Hold(q.model.Key)
	defer release()
	ctx, cancel := context.WithTimeoutCause(q.r.Context(), q.model.Hold, errWaitedTooLong)
	defer cancel()
	q.signs.Request = q.r.WithContext(ctx)
	err = q.signs.Wait(q.turn.ready, func() string { return "no replica serves " + q.model.Key.Name + " yet" })
	q.signs.Request = q.r
	waited := time.Since(q.turn.since)
	outcome := heldRefused
	defer func() { d.opts.Observer.Held(q.model.Key, outcome, waited) }()
	switch {
	case q.failure != nil:
		return q.failure
	case err == nil:
		outcome = heldPassed
		d.starts.Observe(q.model.Key.String(), inference.Start, waited)
		return nil
	case errors.Is(context.Cause(ctx), errWaitedTooLong):
		return &inference.Error{
			Status: http.StatusServiceUnavailable, RetryAfter: d.retryAfter(q.model, waited),
			Message: fmt.Sprintf("the request waited for %s, and no replica serves %s yet: the status of the Model says why", q.model.Hold, q.model.Key.Name),
		}
	}
	outcome = heldClientGone
	return errClientGone
}

// The outcomes of requests that waited.
const (
	heldPassed     = "passed"
	heldRefused    = "refused"
	heldClientGone = "client_gone"
)

// passer is the transport of the proxy: it chooses the Pod, and tries another one if that fails before it has
// answered.
type passer struct{ d *Door }

// RoundTrip passes a request on.
func (p passer) RoundTrip(out *http.Request) (*http.Response, error) {
	d, q := p.d, out.Context().Value(requestKey{}).(*request)
	for attempt := 1; ; attempt++ {
		to, ok := d.choose(q)
		if !ok { // the last Pod went meanwhile
			if err := d.await(q); err != nil {
				return nil, err
			}
			continue
		}
		answer, err := d.send(q, out, to)
		if err == nil {
			return answer, nil
		}
		if out.Context().Err() != nil {
			return nil, errClientGone
		}
		d.outages.failed(to.Address)
		d.opts.Observer.Retried(q.model.Key)
		q.tried = append(q.tried, to.Pod)
		d.opts.Logger.Info("a Pod does not answer", "model", q.model.Key.String(), "pod", to.Pod, "attempt", attempt, "error", err)
		if attempt == mostAttempts || !q.whole && q.bodyBegan() {
			return nil, &inference.Error{Status: http.StatusBadGateway, Message: fmt.Sprintf("%d replicas of %s failed to answer; the last one: %v", attempt, q.model.Key.Name, err)}
		}
	}
}

// choose chooses the Pod for a request.
func (d *Door) choose(q *request) (directory.Endpoint, bool) {
	may, _ := d.eligible(q)
	if len(may) == 0 {
		return directory.Endpoint{}, false
	}
	load := d.load(q.model)
	of := make([]balance.Endpoint, len(may))
	for i, e := range may {
		of[i] = balance.Endpoint{Name: e.Pod, Weight: e.Weight, Load: load.InFlight[e.Pod]}
	}
	if q.model.ByPrefix {
		d.opts.Observer.Chosen(v1alpha1.StrategyPrefixHash)
		return may[d.dir.Ring(q.model).Choose(q.prefix, of, q.model.MeanLoadPercentage)], true
	}
	d.opts.Observer.Chosen(v1alpha1.LeastLoad)
	return may[balance.LeastLoad(of)], true
}

// send sends a request to a Pod. The request counts as in flight until its answer has ended.
func (d *Door) send(q *request, out *http.Request, to directory.Endpoint) (*http.Response, error) {
	release := d.opts.Own.Enter(q.model.Key, to.Pod)
	// The next request in the queue follows once this one is under way.
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { q.leaveQueue() }}
	if !q.whole {
		trace = &httptrace.ClientTrace{WroteHeaders: q.leaveQueue}
	}
	sent := out.Clone(httptrace.WithClientTrace(out.Context(), trace))
	sent.URL.Host = to.Address
	sent.Body, sent.ContentLength = q.content(), q.body.Length()
	answer, err := d.opts.Transport.RoundTrip(sent)
	if err != nil {
		release()
		return nil, err
	}
	if reason := answer.Header.Get(launcherapi.HeaderRefused); reason != "" && answer.StatusCode == http.StatusServiceUnavailable {
		_ = answer.Body.Close() // nothing of it counts
		release()
		return nil, fmt.Errorf("its launcher refused the request: %s", reason)
	}
	q.leaveQueue()
	d.outages.answered(to.Address)
	q.entry, q.status = to.Entry, answer.StatusCode
	answer.Body = &counted{answer.Body, release}
	return answer, nil
}

// counted is the body of an answer, which counts until it is closed.
type counted struct {
	io.ReadCloser

	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.ReadCloser.Close()
}

// bodyBegan reports whether a part of the body has been read, so that it cannot be sent again.
func (q *request) bodyBegan() bool {
	q.reading.Lock()
	defer q.reading.Unlock()
	return q.began
}
