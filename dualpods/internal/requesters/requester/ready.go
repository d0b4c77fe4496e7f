package requester

import (
	"net/http"
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// readyHold is for how long a probe may be held by a requester that is ready: a
// kubelet that was started again takes a Pod for unready until it has an answer.
const readyHold = time.Second

// setReady makes the requester ready or unready. The lock is held. One that was
// told to end stays unready.
func (r *Requester) setReady(ready bool) {
	if r.ready == ready || r.terminating {
		return
	}
	r.ready = ready
	close(r.turned)
	r.turned = make(chan struct{})
}

// getReady answers a probe, which may wait for a requester to become ready, or
// unready.
func (r *Requester) getReady(w http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	var wait time.Duration
	if err := readDuration(query, requesterapi.ParamWait, requesterapi.MaxWait, &wait); err != nil {
		r.answerProblem(w, request, err)
		return
	}
	if turns, most := r.turns(); min(wait, most) > 0 {
		timer := time.NewTimer(min(wait, most))
		defer timer.Stop()
		select {
		case <-turns:
		case <-timer.C:
		case <-request.Context().Done():
			return // nobody reads the answer
		}
	}
	status := r.status()
	if query.Has(requesterapi.ParamWait) {
		r.mu.Lock()
		r.toldReady = status.Ready
		r.mu.Unlock()
	}
	switch {
	case status.Ready:
		answerText(w, http.StatusOK, "OK")
	case status.Terminating:
		answerText(w, http.StatusServiceUnavailable, "not ready: terminating")
	default:
		answerText(w, http.StatusServiceUnavailable, "not ready: "+status.State)
	}
}

// turns is closed when the requester becomes ready or unready, or is told to end,
// and most is for how long a probe may wait for that: not at all where those who
// probe have not been told what is so now.
func (r *Requester) turns() (turned <-chan struct{}, most time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ready != r.toldReady:
		return r.turned, 0
	case r.ready:
		return r.turned, r.readyHold
	}
	return r.turned, requesterapi.MaxWait
}
