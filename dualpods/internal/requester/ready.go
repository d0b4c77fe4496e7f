package requester

import (
	"net/http"
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// setReady makes the requester ready or unready. The lock is held. One that was
// told to end stays unready.
func (r *Requester) setReady(ready bool) {
	if r.ready == ready || r.terminating {
		return
	}
	r.ready = ready
	if ready {
		close(r.turned)
	} else {
		r.turned = make(chan struct{})
	}
}

// getReady answers a probe, which may wait for a requester that comes up.
func (r *Requester) getReady(w http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	var wait time.Duration
	if err := readDuration(query, requesterapi.ParamWait, requesterapi.MaxWait, &wait); err != nil {
		r.answerProblem(w, request, err)
		return
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-r.comesUp():
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
		answerText(w, http.StatusServiceUnavailable, "not ready: told to end")
	default:
		answerText(w, http.StatusServiceUnavailable, "not ready: "+status.State)
	}
}

// comesUp is closed when there is nothing to wait for: the requester is ready, or
// those who probe it do not know yet that it is not any more.
func (r *Requester) comesUp() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.toldReady {
		return r.turned
	}
	now := make(chan struct{})
	close(now)
	return now
}
