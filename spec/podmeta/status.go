package podmeta

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Status is what the controller tells of a requester in AnnotationStatus.
type Status struct {
	// Errors are the problems of the input; the llm-d community's controller
	// has this member under this name.
	Errors []string `json:"Errors,omitempty"`

	State    string    `json:"state,omitempty"`    // where the requester stands, as one word
	Reason   string    `json:"reason,omitempty"`   // why it waits, as one word; that of the Event about it
	Message  string    `json:"message,omitempty"`  // what is waited for, and why
	Since    time.Time `json:"since,omitzero"`     // when the state began
	Launcher string    `json:"launcher,omitempty"` // name of the launcher Pod
	Instance string    `json:"instance,omitempty"` // id of the instance on it

	ModelFrom string `json:"modelFrom,omitempty"` // of one that serves: cache, the launcher's copy, or source, where the engine found the model by itself; empty: the launcher keeps no models
	ModelWhy  string `json:"modelWhy,omitempty"`  // it is from the source

	// Generation is the metadata.generation of the InferenceServerConfig that the
	// requester serves; 0 with a server patch.
	Generation int64 `json:"generation,omitempty"`

	// Seat is the [Assignment.ID] that the status of a seat is about. GPUs are the UUIDs of the seat's GPUs, if they
	// are known.
	Seat string   `json:"seat,omitempty"`
	GPUs []string `json:"gpus,omitempty"`

	LeftAlone []string `json:"leftAlone,omitempty"` // keys of labels that the input would set and that the requester has with another value
	Ignored   []string `json:"ignored,omitempty"`   // fields of the input that mean nothing for an instance of a launcher
}

// Encode returns the value of AnnotationStatus.
func (s Status) Encode() string { return encode(s) }

// ReadStatus reads AnnotationStatus. It is zero if there is none, or none that can be read.
func ReadStatus(pod *corev1.Pod) (s Status) {
	if json.Unmarshal([]byte(pod.Annotations[AnnotationStatus]), &s) != nil {
		return Status{}
	}
	return s
}
