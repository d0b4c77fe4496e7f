package frontdoor

import (
	"errors"
	"net/http"
	"time"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/core/scheduler"
)

// Observer counts what the front door does. Its methods never block.
type Observer interface {
	// FrontDoorRequest counts a request that is over.
	FrontDoorRequest(outcome string)
	// FrontDoorWait notes how long a request waited for its model.
	FrontDoorWait(outcome string, took time.Duration)
	// FrontDoorTransition counts a change of what is awake.
	FrontDoorTransition(kind, outcome string)
}

// The outcomes of requests.
const (
	outcomeAnswered   = "answered"      // by the engine, with any status
	outcomeCut        = "cut"           // the answer was broken off
	outcomeRefused    = "refused"       // no token, or a path that is not served
	outcomeInvalid    = "invalid"       // no model can be read from it
	outcomeUnknown    = "unknown_model" // nothing has that name
	outcomeFull       = "queue_full"
	outcomeTimeout    = "timeout"
	outcomeFailed     = "failed" // the model could not be made awake
	outcomeClientGone = "client_gone"
)

// outcomeOf returns the outcome of a request that failed with an error; nil: it was answered.
func outcomeOf(err error) string {
	if known, ok := errors.AsType[*inference.Error](err); ok {
		switch {
		case known.Code == inference.CodeModelNotFound && known.Status == http.StatusNotFound:
			return outcomeUnknown
		case known.Status >= http.StatusInternalServerError:
			return outcomeFailed
		}
		return outcomeInvalid
	}
	_, full := errors.AsType[*scheduler.FullError](err)
	switch {
	case err == nil:
		return outcomeAnswered
	case full:
		return outcomeFull
	case errors.Is(err, errWaitedTooLong):
		return outcomeTimeout
	case errors.Is(err, errClientGone):
		return outcomeClientGone
	}
	return outcomeFailed
}

// Waiting returns how many requests wait, by model of the catalogue. Those for instances that
// somebody has made are counted as other.
func (f *FrontDoor) Waiting() map[string]int {
	offers := f.fleet.offers.Load()
	waiting := map[string]int{otherModels: 0}
	for n := range offers.models {
		name := offers.models[n].Name
		waiting[name] += f.sched.Show(name).Waiting
	}
	all, _ := f.opts.Instances.List()
	for n := range all {
		if offers.offerOf(&all[n]) == nil {
			waiting[otherModels] += f.sched.Show(made(all[n].InstanceID)).Waiting
		}
	}
	return waiting
}

// otherModels stands for the models that the catalogue does not have. It has blanks, so that no
// model of the catalogue is called so.
const otherModels = "other models"
