package podmeta

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// AnnotationSwapTo is on a requester whose model is being changed in place: [SwapTo] as JSON. The
// controller of ModelServings writes it together with the annotations that say what is served.
const AnnotationSwapTo = PrefixOwn + "swap-to"

// EngineAnnotations are the keys of annotations that say what the engine of a requester is told.
var EngineAnnotations = []string{
	AnnotationServerPatch, AnnotationInferenceServerConfig, AnnotationModelCache, alias(AnnotationServerPatch), alias(AnnotationInferenceServerConfig),
}

// IsEngineAnnotation reports whether an annotation says what an engine is told, or by which launcher.
func IsEngineAnnotation(key string) bool {
	return key == AnnotationLauncherConfig || slices.Contains(EngineAnnotations, key)
}

// SwapTo is a change of the models of a group's requesters in place.
type SwapTo struct {
	Revision string `json:"revision"` // of the template that the group is changed to
	Try      int64  `json:"try"`      // counts the tries for that revision, from 1
	// Forward says that the group has the new model for good: a change that has failed is not
	// taken back, and the requester gets the new model as any requester does.
	Forward bool `json:"forward,omitempty"`
}

// ID names the change; empty: there is none.
func (s SwapTo) ID() string {
	if s.Revision == "" || s.Try < 1 {
		return ""
	}
	return fmt.Sprintf("%s.%d", s.Revision, s.Try)
}

// Encode returns the value of AnnotationSwapTo.
func (s SwapTo) Encode() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers cannot fail
	}
	return string(text)
}

// ReadSwapTo reads AnnotationSwapTo. It is zero if there is none, or none that can be read, and of a Pod
// that no ModelServing controls: nobody would say go to the swap.
func ReadSwapTo(pod *corev1.Pod) (s SwapTo) {
	if ServingOf(pod) == nil || json.Unmarshal([]byte(pod.Annotations[AnnotationSwapTo]), &s) != nil || s.ID() == "" {
		return SwapTo{}
	}
	return s
}

// Change is what a record has of a change in place: the instance that is to come in the place of the
// record's own. Until that is served, the record has both.
type Change struct {
	To string `json:"to"` // which change: its [SwapTo.ID]

	// The fields that the record has once it is changed; empty if the change failed before there was one.
	Instance    string            `json:"instance,omitempty"`
	ServingPort int32             `json:"servingPort,omitempty"`
	SpecHash    string            `json:"specHash,omitempty"`
	Generation  int64             `json:"generation,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	ModelCache  string            `json:"modelCache,omitempty"`
	New         bool              `json:"new,omitempty"`
	LogFrom     int64             `json:"logFrom,omitempty"`
	Since       time.Time         `json:"since,omitzero"`

	Failure string `json:"failure,omitempty"` // why it came to nothing; empty: it goes on
	Misfit  bool   `json:"misfit,omitempty"`  // it was refused, and nothing was changed: there is no room, for instance
}

// Next returns the record as it is once it is changed; nil: it is not being changed.
func (b Binding) Next() *Binding {
	c := b.Change
	if c == nil || c.Instance == "" {
		return nil
	}
	return &Binding{
		Instance: c.Instance, RequesterUID: b.RequesterUID, Namespace: b.Namespace, Name: b.Name, GPUs: b.GPUs,
		ServingPort: c.ServingPort, SpecHash: c.SpecHash, Generation: c.Generation, Annotations: c.Annotations, ModelCache: c.ModelCache,
		New: c.New, LogFrom: c.LogFrom, Attempt: 1, Since: c.Since, ChangedBy: c.To,
	}
}

// Has reports whether a record is of an instance, also of one that is to come.
func (b Binding) Has(instance string) bool {
	return b.Instance == instance || b.Change != nil && b.Change.Instance == instance
}

// checkChange says what is wrong with the change of a record, if anything.
func (b Binding) checkChange() string {
	c := b.Change
	switch {
	case c == nil:
		return ""
	case c.To == "":
		return "change.to is missing"
	case c.Instance == "" && c.Failure == "":
		return "change.instance is missing"
	case c.Instance == "":
		return ""
	case c.Instance == b.Instance:
		return "change.instance is the record's own"
	}
	if wrong := b.Next().check(); wrong != "" {
		return "change: " + wrong
	}
	return ""
}

// Spellings returns the values of an annotation that may be spelled in two ways.
func Spellings(annotations map[string]string, key string) (values []string) {
	for _, key := range []string{key, alias(key)} {
		if value, ok := annotations[key]; ok {
			values = append(values, value)
		}
	}
	return values
}
