package gateway

import (
	"context"
	"net/http"
)

// Verbs are the calls that clients of a bare vLLM use to put it to sleep, for
// a launcher that serves such clients. The engine's own are never reached.
type Verbs interface {
	// Sleep at level 1 or 2; returns when the instance is asleep.
	Sleep(ctx context.Context, level int) error
	// Wake returns when the instance serves again.
	Wake(ctx context.Context) error
	// IsSleeping says whether it is asleep now.
	IsSleeping() bool
}

// verb is one of these calls as HTTP has it. The parameters mode of /sleep and
// tags of /wake_up are not looked at: the launcher drains before it sleeps,
// and wakes whole.
type verb struct {
	method string
	serve  func(Verbs, *exchange, *http.Request)
}

var verbs = map[string]verb{
	"/sleep":       {http.MethodPost, serveSleep},
	"/wake_up":     {http.MethodPost, serveWake},
	"/is_sleeping": {http.MethodGet, serveIsSleeping},
}

// verbOf finds the verb that a request's target names, to the letter.
func verbOf(r *http.Request) (verb, bool) {
	v, ok := verbs[rawPath(r)]
	return v, ok
}

func (p *Proxy) serveVerb(v verb, x *exchange, r *http.Request) {
	if r.Method != v.method {
		x.answer(refuseMethod(r.Method, rawPath(r), v.method))
		return
	}
	v.serve(p.options.Verbs, x, r)
}

func serveSleep(v Verbs, x *exchange, r *http.Request) {
	level := 1
	switch r.URL.Query().Get("level") {
	case "", "1":
	case "2":
		level = 2
	default:
		x.answer(refuseLevel())
		return
	}
	x.answerVerb(v.Sleep(r.Context(), level))
}

func serveWake(v Verbs, x *exchange, r *http.Request) {
	x.answerVerb(v.Wake(r.Context()))
}

func serveIsSleeping(v Verbs, x *exchange, _ *http.Request) {
	x.outcome = OutcomeAnswered
	x.answerJSON(http.StatusOK, map[string]bool{"is_sleeping": v.IsSleeping()})
}

// answerVerb answers as vLLM does: 200 with nothing in it.
func (x *exchange) answerVerb(err error) {
	if err != nil {
		x.answer(refuseVerb(err))
		return
	}
	x.outcome = OutcomeAnswered
	x.WriteHeader(http.StatusOK)
}
