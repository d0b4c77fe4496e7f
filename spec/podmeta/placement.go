package podmeta

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Placement is why a requester is preferably placed on some nodes.
type Placement struct {
	Launcher types.UID `json:"launcher,omitempty"` // whose sleeping instance the requester is to have; empty: there was none
	Instance string    `json:"instance,omitempty"` // its id
	Why      string    `json:"why"`                // for people
	Since    time.Time `json:"since"`              // when the gate was taken off
}

// Encode returns the value of AnnotationPlacement.
func (p Placement) Encode() string {
	p.Since = p.Since.UTC()
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and a time cannot fail
	}
	return string(text)
}

// ReadPlacement reads AnnotationPlacement. ok is false where there is none, or none
// that can be read.
func ReadPlacement(pod *corev1.Pod) (p Placement, ok bool) {
	text, there := pod.Annotations[AnnotationPlacement]
	return p, there && json.Unmarshal([]byte(text), &p) == nil
}

// AwaitsPlacement says that a Pod carries SchedulingGate.
func AwaitsPlacement(pod *corev1.Pod) bool { return hasGate(&pod.Spec, SchedulingGate) }
