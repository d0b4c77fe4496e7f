// Package fetchapi is what modelfetch, the program that fetches models, and its
// parent say to each other: JSON, one object a line. Any other program that speaks
// the same lines can take modelfetch's place.
//
//	modelfetch                                parent
//	                                        ←   credentials, where it is called with --credentials
//	  manifest: what the model consists of  →
//	                                        ←   go: which files need not be fetched
//	  progress, note, again and again       →
//	  done: the manifest, with each hash    →   publishes
//
// Where the parent needs nothing fetched, it says prove in place of go:
//
//	                                      ←   prove
//	proved: the source lets it read       →   ends it
//
// A source that has changed meanwhile has modelfetch begin with another manifest. In
// place of any of its lines it may say error, and end. It ends, too, when its standard
// input does.
package fetchapi

// The types of lines.
const (
	TypeCredentials = "credentials"
	TypeManifest    = "manifest"
	TypeGo          = "go"
	TypeProve       = "prove"
	TypeProved      = "proved"
	TypeProgress    = "progress"
	TypeNote        = "note"
	TypeDone        = "done"
	TypeError       = "error"
	TypeOpened      = "opened" // of a program that is a source, see program.go
)

// Line is one line, of either.
type Line struct {
	Type string `json:"type"`

	Credentials Credentials `json:"credentials,omitempty"` // of credentials

	Manifest *Manifest `json:"manifest,omitempty"` // of manifest and done
	Have     []string  `json:"have,omitempty"`     // of go: hashes of files that the store has
	Staging  string    `json:"staging,omitempty"`  // of go: the folder to write into

	FetchedBytes int64  `json:"fetched_bytes,omitempty"` // of progress: so far, with what was there from an earlier try
	NetworkBytes int64  `json:"network_bytes,omitempty"` // of progress: what this process has received
	TotalBytes   int64  `json:"total_bytes,omitempty"`   // of progress
	Text         string `json:"text,omitempty"`          // of note: what people may want to know, as that it waits

	Error *Error `json:"error,omitempty"` // of error

	Offset int64 `json:"offset,omitempty"` // of opened: from where the content is
}

// The reasons of errors.
const (
	ReasonInvalid           = "Invalid"           // the address or the manifest is wrong
	ReasonNotFound          = "NotFound"          // the source has no such model, revision or file
	ReasonAccessDenied      = "AccessDenied"      // the source wants a credential, or another
	ReasonUnavailable       = "Unavailable"       // the source did not answer as it should, again and again
	ReasonIntegrityMismatch = "IntegrityMismatch" // what came is not what was announced
	ReasonCapacityExceeded  = "CapacityExceeded"  // the limit of the store, or of its disk
	ReasonInternal          = "Internal"          // something of this machine
)

// Error is why a model is not fetched.
type Error struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

func (e *Error) Error() string { return e.Detail }
