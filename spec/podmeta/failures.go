package podmeta

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AnnotationFailuresPrefix stands on a launcher Pod, the instance's id behind it:
// [Failures] as JSON. Whoever removes it has the instance started again at once.
const AnnotationFailuresPrefix = PrefixOwn + "failed."

// FailuresKept is for how long a launcher Pod keeps Failures.
const FailuresKept = time.Hour

// Failures is how often an instance has ended while it served, each time soon
// after it had begun to. It outlives the requesters that it served.
type Failures struct {
	RequesterUID types.UID `json:"requesterUID"`      // whom it served last
	Attempt      string    `json:"attempt,omitempty"` // the swap key of the attempt by which it served
	Count        int       `json:"count"`             // from 1
	Last         time.Time `json:"last"`              // when it was seen last
	Why          string    `json:"why"`               // how it ended
}

// ReadFailures reads those of an instance; nil where there are none, or what
// stands there cannot be read: they are worth a pause, and no more.
func ReadFailures(pod *corev1.Pod, instance string) *Failures {
	var f Failures
	if json.Unmarshal([]byte(pod.Annotations[AnnotationFailuresPrefix+instance]), &f) != nil || f.Count < 1 || f.Last.IsZero() {
		return nil
	}
	return &f
}

// Put writes them on a launcher Pod.
func (f Failures) Put(pod *corev1.Pod, instance string) error {
	f.Last = f.Last.UTC()
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[AnnotationFailuresPrefix+instance] = string(text)
	return nil
}

// ForgetFailures removes from a launcher Pod what it has kept for long enough,
// and what cannot be read.
func ForgetFailures(pod *corev1.Pod, now time.Time) {
	for key := range pod.Annotations {
		instance, ok := strings.CutPrefix(key, AnnotationFailuresPrefix)
		if !ok {
			continue
		}
		if f := ReadFailures(pod, instance); f == nil || now.Sub(f.Last) > FailuresKept {
			delete(pod.Annotations, key)
		}
	}
}
