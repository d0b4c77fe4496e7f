// Package demandapi holds the wire types by which the front doors of a cluster tell each other and the
// controller how many requests they have for each Model.
//
// GET Path of a front door answers with a stream of JSON documents, one on each line, of the type
// application/x-ndjson. The first one is whole: it has all Models with requests. Later ones have the Models
// whose numbers have changed. A front door writes at least one in each HeartbeatInterval, an empty one if
// nothing has changed. The numbers of a front door that is silent for SilenceLimit are taken to be zero.
package demandapi

import "time"

// Path is where a front door answers.
const Path = "/demand"

// The times of the stream.
const (
	HeartbeatInterval = 250 * time.Millisecond
	SilenceLimit      = time.Second
)

// Report is a document of the stream.
type Report struct {
	Whole  bool    `json:"whole,omitempty"` // all Models that are absent have no requests
	Models []Model `json:"models,omitempty"`
}

// Model is the number of requests for a Model at one front door.
type Model struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Held counts the requests that wait, since no Pod answers them yet.
	Held int `json:"held,omitempty"`
	// InFlight counts the requests that Pods answer, by the name of the Pod. A Pod that is absent has none.
	InFlight map[string]int `json:"in_flight,omitempty"`
	// Refused says that the Model lets no request wait, and that requests were refused a moment ago because no Pod
	// could answer them.
	Refused bool `json:"refused,omitempty"`
}
