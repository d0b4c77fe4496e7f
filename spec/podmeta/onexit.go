package podmeta

import (
	"fmt"
	"slices"
)

// OnExit says what becomes of a requester when its instance ends while it serves.
type OnExit string

// The values of AnnotationOnExit.
const (
	OnExitDelete  OnExit = "Delete"  // the controller deletes the requester, as it does without the annotation
	OnExitRestart OnExit = "Restart" // the requester stays, and its instance is started again
	OnExitKeep    OnExit = "Keep"    // the requester stays, and nothing is started again
)

// OnExits are the values of AnnotationOnExit.
var OnExits = []OnExit{OnExitDelete, OnExitRestart, OnExitKeep}

// onExit reads AnnotationOnExit; empty: the requester does not say, or says something else than OnExits.
func (r *reading) onExit() OnExit {
	value, says := r.pod.Annotations[AnnotationOnExit]
	if !says {
		return ""
	}
	if !slices.Contains(OnExits, OnExit(value)) {
		r.add(annotationField(AnnotationOnExit), fmt.Sprintf("%q is none of Delete (the Pod is deleted when its instance ends), Restart (the instance is started again) and Keep (nothing is started again)", value))
		return ""
	}
	return OnExit(value)
}
