package frontdoor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/core/scheduler"
	"hotseat.dev/hotseat/launcher/internal/edges/browser"
	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/launcher/internal/edges/gateway"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Bounds of requests.
const (
	mostJSON = 32 << 20 // a chat may have pictures
	mostForm = 1 << 30  // of speech; only what stands before the model is held
	// heldWhole is the size up to which the body of a request is read as a whole.
	heldWhole = 8 << 20
	// mostHeldBytes bounds what the bodies of all requests take.
	mostHeldBytes = 256 << 20
	// signEvery is the time between two signs of life.
	signEvery = 5 * time.Second
	// unknownWait is Retry-After for a model whose transitions have not been seen yet.
	unknownWait = 5 * time.Second
)

// ServeHTTP answers a request.
func (f *FrontDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	inference.SetRequestID(w, r)
	forPages := f.servesPages(r)
	if forPages {
		inference.AllowReading(w.Header(), r)
	}
	if err := browser.CheckName(r); err != nil {
		f.refuse(w, r, &inference.Error{Status: http.StatusForbidden, Message: err.Error()})
		return
	}
	if forPages && inference.IsPreflight(r) { // browsers send no token with it
		inference.AnswerPreflight(w, r, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost)
		return
	}
	if err := f.admit(r); err != nil {
		f.refuse(w, r, err)
		return
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch path := r.URL.Path; {
	case read && (path == "/health" || path == "/"): // with / Ollama's own program asks whether its server runs
		w.WriteHeader(http.StatusOK)
	case read && path == modelsPath:
		f.listModels(w)
	case read && strings.HasPrefix(path, modelsPath+"/"):
		f.showModel(w, r, strings.TrimPrefix(path, modelsPath+"/"))
	case strings.HasPrefix(path, ollamaPrefix):
		f.serveOllama(w, r)
	case r.Method != http.MethodPost || !f.isInference(r):
		f.refuse(w, r, inference.NotServed(r))
	default:
		f.answer(w, r, f.pass)
	}
}

const modelsPath = "/v1/models"

// refuse answers a request that is not for the front door.
func (f *FrontDoor) refuse(w http.ResponseWriter, r *http.Request, err *inference.Error) {
	f.opts.Observer.FrontDoorRequest(outcomeRefused)
	inference.WriteError(w, r, err)
}

// isInference reports whether engines answer at the path of a request.
func (f *FrontDoor) isInference(r *http.Request) bool {
	return f.filter.Classify(http.MethodPost, r.RequestURI, false) == gateway.ClassInference
}

// servesPages reports whether scripts of web pages may call the path of a request. Like Ollama, the
// front door lets pages of other sites call no path of Ollama's API.
func (f *FrontDoor) servesPages(r *http.Request) bool {
	path := r.URL.Path
	return path == "/" || path == "/health" || path == modelsPath || strings.HasPrefix(path, modelsPath+"/") || f.isInference(r)
}

// admit returns why a client may not call.
func (f *FrontDoor) admit(r *http.Request) *inference.Error {
	if f.opts.Access == nil {
		return nil
	}
	if key := r.Header.Get(anthropicKey); key != "" && r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if err := f.opts.Access.Allow(r); err != nil {
		refusal := &inference.Error{Status: http.StatusUnauthorized, Message: err.Error()}
		if launcher.CodeOf(err) == launcherapi.CodeUnavailable {
			refusal.Status = http.StatusServiceUnavailable
		}
		return refusal
	}
	r.Header.Del("Authorization") // the token is the front door's, and no engine's
	r.Header.Del(anthropicKey)
	return nil
}

// anthropicKey is the header in which Anthropic's clients send the token.
const anthropicKey = "X-Api-Key"

// answer reads which model a request is for, and has it answered by pass. An error of pass says
// that nothing was answered.
func (f *FrontDoor) answer(w http.ResponseWriter, r *http.Request, pass func(*request) error) {
	q := &request{ResponseWriter: w, r: r, signs: &inference.Signs{Writer: w, Request: r, Interval: signEvery}}
	defer func() { // also after an answer that is broken off, which panics
		q.closeBody()
		f.opts.Observer.FrontDoorRequest(cmp.Or(q.outcome, outcomeCut))
	}()
	err := f.read(q)
	if err == nil {
		err = pass(q)
	}
	q.outcome = outcomeOf(err)
	switch {
	case q.outcome == outcomeClientGone:
		panic(http.ErrAbortHandler)
	case err != nil:
		q.signs.Fail(f.explain(q.chosen.Model, err))
	}
}

// request is a request for a model.
type request struct {
	http.ResponseWriter

	r       *http.Request
	signs   *inference.Signs
	body    *inference.Body
	reading sync.Mutex // held while the body is read
	means   catalogue.Target
	chosen  catalogue.Candidate // among those
	outcome string
}

// Read reads the body for the engine. That may still go on when the answer has ended, until the
// gate ends it.
func (q *request) Read(p []byte) (int, error) {
	q.reading.Lock()
	defer q.reading.Unlock()
	return q.body.Read(p)
}

// Close does nothing: the body is needed until the answer has ended.
func (*request) Close() error { return nil }

func (q *request) closeBody() {
	q.reading.Lock()
	defer q.reading.Unlock()
	if q.body != nil {
		_ = q.body.Close() // it has no errors
	}
}

// read finds out which model a request is for, and which signs of life its client wants.
func (f *FrontDoor) read(q *request) (err error) {
	if q.body, err = inference.ReadModel(q.r, inference.Limits{JSON: mostJSON, Form: mostForm, Memory: f.memory}); err != nil {
		return err
	}
	if q.means, err = f.resolve(q.body.Model); err != nil {
		return inference.ModelNotFound(err)
	}
	// The server notices a client that hangs up once it has read the whole body. A client that
	// sends slowly has no place among the requests that wait.
	if q.r.ContentLength <= heldWhole {
		if _, err := q.body.Ahead(heldWhole); err != nil {
			return err
		}
	}
	q.r.Header.Del("Expect") // the client was asked for its body here, and no engine has to
	q.signs.Model = q.body.Model
	progress, err := inference.ProgressOf(q.r)
	if err != nil || progress == inference.ProgressNone {
		return err
	}
	if err := q.body.Complete(); err != nil {
		return err
	}
	if streams, _ := q.body.Streams(); streams {
		q.signs.Progress = progress
	}
	return nil
}

// pass waits until the model of a request is awake, and hands the request to the gate of the
// model's instance. An error says that nothing was answered.
func (f *FrontDoor) pass(q *request) error {
	chosen, ticket, err := f.enter(q.means)
	q.chosen = chosen
	if err != nil {
		return err
	}
	var i *launcherapi.Instance
	defer func() { f.leave(ticket, i) }()
	if i, err = f.awaitInstance(q, ticket); err != nil {
		return err
	}
	var handler http.Handler
	if i != nil {
		handler = f.opts.Handlers(i.InstanceID)
	}
	if handler == nil {
		return launcher.Unavailablef("the model was removed while the request waited")
	}
	if err := q.body.Rewrite(servedName(i, q.body.Model), chosen.Params); err != nil {
		return err
	}
	r := q.r.WithContext(q.r.Context()) // a copy: the server needs its own body unchanged
	r.Body, r.ContentLength = q, q.body.Length()
	if q.signs.Began() {
		return inference.Continue(q.ResponseWriter, handler, r)
	}
	inference.ForgetReading(q.Header()) // the engine says who may read its answer
	handler.ServeHTTP(q.ResponseWriter, r)
	return nil
}

// awaitInstance waits until the instance of a request's model is awake, and returns it; nil: it is
// gone. The scheduler may have let the request through just before the model fell asleep: then the
// request waits again, since the gate knows no reason to refuse it.
func (f *FrontDoor) awaitInstance(q *request, ticket *scheduler.Ticket) (*launcherapi.Instance, error) {
	for {
		if err := f.await(q, ticket); err != nil {
			return nil, err
		}
		i := f.fleet.find(q.chosen.Model)
		if i == nil || i.State == string(launcher.Awake) {
			return i, nil
		}
		ticket.Again()
	}
}

// await waits until the model of a request is awake.
func (f *FrontDoor) await(q *request, ticket *scheduler.Ticket) error {
	select {
	case <-ticket.Ready():
	default:
		began := time.Now()
		err := f.hold(q, ticket)
		f.opts.Observer.FrontDoorWait(outcomeOf(errors.Join(err, ticket.Err())), time.Since(began))
		if err != nil {
			return err
		}
	}
	return ticket.Err()
}

// leave ends a request. If the model of its instance has changed or is gone, the scheduler looks
// again, so that the instance ends. i is nil if the request reached no instance.
func (f *FrontDoor) leave(ticket *scheduler.Ticket, i *launcherapi.Instance) {
	ticket.Leave()
	if i != nil && f.fleet.offers.Load().isRetired(i) {
		f.sched.Kick()
	}
}

// servedName returns the name by which an instance knows its model.
func servedName(i *launcherapi.Instance, asked string) string {
	for _, name := range i.ServedModelNames {
		if name == asked {
			return asked
		}
	}
	if len(i.ServedModelNames) > 0 {
		return i.ServedModelNames[0]
	}
	return asked
}

var (
	errWaitedTooLong = errors.New("the request waited too long")
	errClientGone    = errors.New("the client has hung up")
)

// hold waits until the model of a request is awake, or the request has failed.
func (f *FrontDoor) hold(q *request, ticket *scheduler.Ticket) error {
	ctx, cancel := context.WithCancelCause(q.r.Context())
	defer cancel(nil)
	late := time.AfterFunc(f.patience(q.chosen.Model), func() { cancel(errWaitedTooLong) })
	defer late.Stop()
	gone, stop := gateway.Hangup(q.r)
	defer stop()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-gone:
			cancel(errClientGone)
		case <-ctx.Done():
		}
	}()
	q.signs.Request = q.r.WithContext(ctx)
	err := q.signs.Wait(ticket.Ready(), ticket.Why)
	q.signs.Request = q.r
	cause := context.Cause(ctx)
	cancel(nil)
	<-watched
	switch {
	case err == nil:
		return nil
	case errors.Is(cause, errWaitedTooLong):
		if why := ticket.Why(); why != "" {
			return fmt.Errorf("%w: %s", errWaitedTooLong, why)
		}
		return errWaitedTooLong
	}
	return errClientGone
}

// patience returns how long a request may wait for a model: as long as a start may take, unless
// the model only sleeps and its process is there.
func (f *FrontDoor) patience(model string) time.Duration {
	if i := f.fleet.find(model); i != nil && i.PID != 0 {
		switch launcher.State(i.State) {
		case launcher.Sleeping, launcher.FallingAsleep, launcher.Waking, launcher.Awake:
			return f.opts.Hold
		case launcher.Starting, launcher.Stopping, launcher.Stopped, launcher.Failed:
		}
	}
	return max(f.opts.Hold, f.opts.Start)
}

// explain returns the answer to a request that failed.
func (f *FrontDoor) explain(model string, err error) *inference.Error {
	if known, ok := errors.AsType[*inference.Error](err); ok {
		return known
	}
	answer := &inference.Error{Status: http.StatusServiceUnavailable, Message: err.Error(), RetryAfter: f.retryAfter(model)}
	if _, full := errors.AsType[*scheduler.FullError](err); full {
		answer.Status = http.StatusTooManyRequests
		return answer
	}
	failed, ok := errors.AsType[*scheduler.NotBroughtInError](err)
	if !ok {
		return answer
	}
	if failed.Retry > 0 {
		answer.RetryAfter = failed.Retry
	}
	switch launcher.CodeOf(failed.Err) {
	case launcherapi.CodeEngineFailed, launcherapi.CodeEngineTimeout, launcherapi.CodeInvalid:
		answer.Status = http.StatusBadGateway
	case launcherapi.CodeNotFound:
		answer.Status, answer.Code, answer.Param, answer.RetryAfter = http.StatusNotFound, inference.CodeModelNotFound, "model", 0
	}
	return answer
}

// retryAfter predicts how long the next wake or start of a model takes.
func (f *FrontDoor) retryAfter(model string) time.Duration {
	took := inference.Start
	if i := f.fleet.find(model); i != nil && !launcher.State(i.State).Ended() && i.State != string(launcher.Starting) {
		took = inference.Wake
	}
	return f.fleet.past.RetryAfter(model, took, 0, unknownWait)
}
