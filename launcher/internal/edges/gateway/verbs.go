package gateway

import (
	"context"
	"errors"
	"net/http"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/browser"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Verbs answers the sleep calls of vLLM's API, for clients that expect to reach a
// bare vLLM. The proxy answers with them instead of the engine, whose own endpoints
// are never reached. The code of an error decides the status of the answer.
type Verbs interface {
	// Sleep puts the instance to sleep at level 1 or 2, and returns when it sleeps.
	// With wait, requests in flight may end first; otherwise they are cut. When ctx
	// ends, Sleep returns, and the instance continues to fall asleep.
	Sleep(ctx context.Context, level int, wait bool) error
	// Wake wakes the instance, and returns when it serves again.
	Wake(ctx context.Context) error
	// IsSleeping reports whether the instance sleeps, falls asleep or wakes. It
	// returns an error when the instance does not serve for another reason.
	IsSleeping() (bool, error)
}

// verb is one of the sleep calls. The proxy ignores the parameter tags of /wake_up:
// the launcher wakes the whole instance.
type verb struct {
	method string
	serve  func(*Proxy, *exchange, *http.Request)
}

var verbs = map[string]verb{
	"/sleep":       {http.MethodPost, (*Proxy).serveSleep},
	"/wake_up":     {http.MethodPost, (*Proxy).serveWake},
	"/is_sleeping": {http.MethodGet, (*Proxy).serveIsSleeping},
}

// verbOf returns the verb whose path is exactly that of the request.
func verbOf(r *http.Request) (verb, bool) {
	v, ok := verbs[rawPath(r)]
	return v, ok
}

func (p *Proxy) serveVerb(v verb, x *exchange, r *http.Request) {
	if err := errors.Join(browser.CheckSite(r), browser.CheckName(r)); err != nil {
		x.answer(refuseBrowser(err))
		return
	}
	if r.Method != v.method {
		x.answer(refuseMethod(r.Method, rawPath(r), v.method))
		return
	}
	v.serve(p, x, r)
}

// serveSleep takes vLLM's parameters. The mode "abort", which is the default, cuts
// requests in flight. The mode "wait" lets them end. So does "keep", although vLLM
// itself would freeze them.
func (p *Proxy) serveSleep(x *exchange, r *http.Request) {
	query, level, wait := r.URL.Query(), 1, false
	switch query.Get("level") {
	case "", "1":
	case "2":
		level = 2
	default:
		x.answer(refuseParameter("level must be 1 or 2"))
		return
	}
	switch query.Get("mode") {
	case "", "abort":
	case "wait", "keep":
		wait = true
	default:
		x.answer(refuseParameter("mode must be abort, wait or keep"))
		return
	}
	late := launcher.EngineTimeoutf("the instance is still falling asleep after %s; ask again", p.options.SleepTimeout)
	ctx, cancel := context.WithTimeoutCause(r.Context(), p.options.SleepTimeout, late)
	defer cancel()
	p.answerVerb(x, r, p.options.Verbs.Sleep(ctx, level, wait))
}

func (p *Proxy) serveWake(x *exchange, r *http.Request) {
	p.answerVerb(x, r, p.options.Verbs.Wake(r.Context()))
}

func (p *Proxy) serveIsSleeping(x *exchange, r *http.Request) {
	asleep, err := p.options.Verbs.IsSleeping()
	if err != nil {
		p.answerVerb(x, r, err)
		return
	}
	x.outcome = OutcomeAnswered
	x.answerJSON(http.StatusOK, map[string]bool{"is_sleeping": asleep})
}

// answerVerb answers a verb. On success the answer is that of vLLM: 200 with an empty
// body.
func (p *Proxy) answerVerb(x *exchange, r *http.Request, err error) {
	switch {
	case err == nil:
		x.outcome = OutcomeAnswered
		x.WriteHeader(http.StatusOK)
	case wasCut(r):
		reason, _ := p.gate.currentReason()
		x.answer(refuseCut(reason))
	case r.Context().Err() != nil:
		x.status, x.outcome = statusClientGone, OutcomeClientGone
		panic(http.ErrAbortHandler)
	default:
		x.answer(refuseVerb(launcherapi.StatusOf(launcher.CodeOf(err)), err))
	}
}
