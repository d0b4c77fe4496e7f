package podmeta

import (
	"encoding/json"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// LabelSeat is on the Pods of a SeatPool, its seats, and on the InferenceServerConfigs of entries that take
// seats of it: the name of the SeatPool. A Pod with this label is a requester, also while it has no model.
const LabelSeat = PrefixOwn + "seat"

// Annotations of seats.
const (
	// AnnotationSeat is on a seat that has a model: [Assignment] as JSON. The controller of SeatPools writes it
	// in one patch with the annotations and labels that say what is served.
	AnnotationSeat = PrefixOwn + "seat-model"
	// AnnotationSeatsAsked is on an InferenceServerConfig of an entry that takes seats: [SeatsAsked] as JSON.
	AnnotationSeatsAsked = PrefixOwn + "seats-asked"
)

// Assignment says which model a seat has.
type Assignment struct {
	Model  string `json:"model"`
	Entry  string `json:"entry"`
	Config string `json:"config"` // its InferenceServerConfig
	// Generation is the lowest generation of Config that describes the model. A cache may still have an older one.
	Generation int64     `json:"generation"`
	Hash       string    `json:"hash"`            // of the entry
	Since      time.Time `json:"since"`           // when the seat got it; no two assignments of a seat have the same
	Leaves     time.Time `json:"leaves,omitzero"` // since when the seat takes no new requests for it; zero: it takes them
}

// ID names the assignment; empty: there is none. It stays the same while the seat leaves its model.
func (a Assignment) ID() string {
	if a.Config == "" {
		return ""
	}
	return a.Hash + "." + strconv.FormatInt(a.Since.UnixMicro(), 36)
}

// Encode returns the value of AnnotationSeat.
func (a Assignment) Encode() string { return encode(a) }

// SeatsAsked is how many seats an entry of a Model asks for.
type SeatsAsked struct {
	Replicas int    `json:"replicas"`
	Min      int    `json:"min,omitempty"`    // minReplicas
	Target   int    `json:"target,omitempty"` // targetRequests: the weight of the Model
	Firm     bool   `json:"firm,omitempty"`   // asked for without a request, such as by kubectl scale
	Hash     string `json:"hash"`             // of the entry
	// ModelCache is the value of AnnotationModelCache on the seat; empty: it has none.
	ModelCache string `json:"modelCache,omitempty"`
}

// Encode returns the value of AnnotationSeatsAsked.
func (a SeatsAsked) Encode() string { return encode(a) }

func encode(of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // strings, numbers and times cannot fail
	}
	return string(text)
}

// IsSeat reports whether a Pod is a seat: a requester that may have no model.
func IsSeat(pod *corev1.Pod) bool { return pod.Labels[LabelSeat] != "" }

// SeatEdited reports whether the annotations of a seat ask for a server other than that of its assignment, or for a server
// without an assignment. The controller writes both in one patch, so somebody else has edited them.
func SeatEdited(pod *corev1.Pod) bool { return AsksForOther(pod, ReadAssignment(pod).Config) }

// AsksForOther reports whether the annotations of a Pod ask for a server other than that of an InferenceServerConfig;
// empty: for any server.
func AsksForOther(pod *corev1.Pod, config string) bool {
	for _, key := range []string{AnnotationServerPatch, alias(AnnotationServerPatch)} {
		if _, has := pod.Annotations[key]; has {
			return true
		}
	}
	other, has := pod.Annotations[alias(AnnotationInferenceServerConfig)]
	return pod.Annotations[AnnotationInferenceServerConfig] != config || has && other != config
}

// ReadAssignment reads AnnotationSeat. The assignment is zero if there is none, or none that can be read. The seat then
// counts as a seat without a model.
func ReadAssignment(pod *corev1.Pod) (a Assignment) {
	if !IsSeat(pod) || json.Unmarshal([]byte(pod.Annotations[AnnotationSeat]), &a) != nil || a.ID() == "" {
		return Assignment{}
	}
	return a
}
