package podmeta

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Binding is a record on a launcher Pod: which requester has which instance.
type Binding struct {
	// Instance is the instance's id on the launcher; it stands in the key of
	// the annotation.
	Instance string `json:"-"`

	RequesterUID types.UID `json:"requesterUID"`
	Namespace    string    `json:"namespace"`
	Name         string    `json:"name"`

	GPUs        []string `json:"gpus"`        // UUIDs, in the order that the engine sees them
	ServingPort int32    `json:"servingPort"` // the requester's port that carries traffic to the instance
	SpecHash    string   `json:"specHash"`    // identity of what runs, without the GPUs

	// Generation is that of the InferenceServerConfig that the record is of; 0 with a server patch.
	Generation int64 `json:"generation,omitempty"`

	// Annotations are what the instance is to have when the swap makes it: a swap is
	// asked for in the same words whatever is edited meanwhile.
	Annotations map[string]string `json:"annotations,omitempty"`
	// ModelCache says, likewise, from where the instance is to have its model: one of
	// ModelCacheModes; empty: as the launcher does without being told.
	ModelCache string `json:"modelCache,omitempty"`

	// Ahead says that the record was made by the kubelet's word, before the requester program ran.
	Ahead   bool      `json:"ahead,omitempty"`
	New     bool      `json:"new,omitempty"`     // the swap makes the instance; otherwise it wakes one that is there
	LogFrom int64     `json:"logFrom,omitempty"` // where in the instance's log begins what is the requester's; 0: it is made for it; negative: at the end that it has
	Attempt int       `json:"attempt"`           // counts the swaps asked for, from 1
	Since   time.Time `json:"since"`             // when the record was made

	Failures int       `json:"failures,omitempty"` // attempts, one after the other, that came to nothing since the requester was served last
	Failure  string    `json:"failure,omitempty"`  // why the last of them did
	Invalid  bool      `json:"invalid,omitempty"`  // it failed because the launcher cannot use the input, whatever else runs there
	RetryAt  time.Time `json:"retryAt,omitzero"`   // when the attempt may be made; zero: at once
	Kept     string    `json:"kept,omitempty"`     // how the instance ended while it served, where the requester says OnExitKeep

	ChangedBy string  `json:"changedBy,omitempty"` // the [SwapTo.ID] of the change in place that made the record, or the [Assignment.ID] of a seat; empty: there is none
	Change    *Change `json:"change,omitempty"`    // that is under way; nil: none is
}

// SwapKey is the idempotency key of the swap that the attempt asks for. A record
// that is made again for the same requester has keys of its own.
func (b Binding) SwapKey() string { return b.keys() + strconv.Itoa(b.Attempt) }

// HasKey reports whether a key is that of an attempt of this record, of whichever.
func (b Binding) HasKey(key string) bool { return strings.HasPrefix(key, b.keys()) }

// keys is how the keys of all attempts begin.
func (b Binding) keys() string {
	return fmt.Sprintf("%s.%s.", b.RequesterUID, strconv.FormatInt(b.Since.UnixNano(), 36))
}

// Encode returns the annotation that holds the record.
// It fails where [ReadBindings] would not take the record back.
func (b Binding) Encode() (key, value string, err error) {
	key = AnnotationBindingPrefix + b.Instance
	if wrong := b.check(); wrong != "" {
		return "", "", fmt.Errorf("cannot record the binding of instance %q: %s", b.Instance, wrong)
	}
	b.Since, b.RetryAt = b.Since.UTC(), b.RetryAt.UTC()
	if b.Change != nil {
		change := *b.Change
		change.Since = change.Since.UTC()
		b.Change = &change
	}
	text, err := json.Marshal(b)
	if err != nil {
		return "", "", fmt.Errorf("cannot record the binding of instance %q: %w", b.Instance, err)
	}
	return key, string(text), nil
}

// ReadBindings reads the records on a launcher Pod, sorted by instance. A
// record that cannot be read is left out and is a problem, whose field is
// [RecordField]; the others stand. A launcher serves requesters of its own
// namespace alone: the controller has not written a record that names another
// namespace, and it counts for nothing.
func ReadBindings(pod *corev1.Pod) ([]Binding, []Problem) {
	var bindings []Binding
	var problems []Problem
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		instance, ok := strings.CutPrefix(key, AnnotationBindingPrefix)
		if !ok {
			continue
		}
		b := Binding{}
		err := json.Unmarshal([]byte(pod.Annotations[key]), &b)
		b.Instance = instance
		wrong := ""
		if err != nil {
			wrong = fmt.Sprintf("is no JSON (%v)", err)
		} else {
			wrong = b.check()
		}
		if wrong != "" {
			problems = append(problems, invalid(RecordField(instance), wrong+": the controller does not repair this record: restore it, or delete the Pod"))
			continue
		}
		if b.Namespace == pod.Namespace {
			bindings = append(bindings, b)
		}
	}
	return bindings, problems
}

// RecordField is the field of the record of an instance.
func RecordField(instance string) string { return annotationField(AnnotationBindingPrefix + instance) }

// BoundTo returns the UIDs of the requesters that have a readable record on the
// Pod, as [ReadBindings] has it.
func BoundTo(pod *corev1.Pod) []string {
	bindings, _ := ReadBindings(pod)
	uids := make([]string, len(bindings))
	for i, b := range bindings {
		uids[i] = string(b.RequesterUID)
	}
	return uids
}

// check says what is wrong with the record, if anything.
func (b Binding) check() string {
	if wrong := CheckInstanceID(b.Instance); wrong != "" {
		return wrong
	}
	for _, field := range []struct{ name, value string }{
		{"requesterUID", string(b.RequesterUID)}, {"namespace", b.Namespace}, {"name", b.Name}, {"specHash", b.SpecHash},
	} {
		if field.value == "" {
			return field.name + " is missing"
		}
	}
	switch {
	case len(b.GPUs) == 0 || slices.Contains(b.GPUs, ""):
		return "gpus should name each GPU by its UUID"
	case len(slices.Compact(slices.Sorted(slices.Values(b.GPUs)))) != len(b.GPUs):
		return "gpus names a GPU twice"
	case b.ServingPort < 1 || b.ServingPort > 65535:
		return fmt.Sprintf("servingPort %d is none: it should be 1 to 65535", b.ServingPort)
	case b.Attempt < 1:
		return fmt.Sprintf("attempt %d is none: they count from 1", b.Attempt)
	case b.Failures < 0:
		return fmt.Sprintf("failures %d is no number of them: it should be 0 or more", b.Failures)
	case b.Since.IsZero():
		return "since is missing"
	}
	return b.checkChange()
}

// CheckInstanceID says what is wrong with an id whose record is to stand in an
// annotation: at most 55 letters, digits, '-', '_' and '.', with a letter or a
// digit at either end. Empty: nothing.
func CheckInstanceID(id string) string {
	if id == "" {
		return "the id of the instance is missing behind " + AnnotationBindingPrefix
	}
	if wrong := validation.IsQualifiedName(AnnotationBindingPrefix + id); len(wrong) > 0 || !alphanumeric(id[0]) {
		return fmt.Sprintf("instance id %q does not fit in the key of an annotation: it should have at most 55 letters, digits, '-', '_' and '.', with a letter or a digit at either end", id)
	}
	return ""
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}
