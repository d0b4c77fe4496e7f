// Package fetchapi is the protocol between modelfetch, the program that fetches models,
// and its parent: JSON, one object a line. Any other program that speaks this protocol
// can take modelfetch's place.
//
//	modelfetch                                parent
//	                                        ←   credentials, if it was called with --credentials
//	  manifest: what the model consists of  →
//	                                        ←   go: which files need not be fetched
//	  progress, note, repeatedly            →
//	  done: the manifest, with each hash    →   publishes
//
// If the parent needs no files of a private model, it writes prove in place of go:
//
//	                                      ←   prove
//	proved: the source lets it read       →   ends it
//
// If the source changes meanwhile, modelfetch starts again with another manifest. In place
// of any line it may write error, and end. It also ends when its standard input ends.
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

// Line is one line of modelfetch or of its parent.
type Line struct {
	Type string `json:"type"`

	Credentials Credentials `json:"credentials,omitempty"` // of credentials

	Manifest *Manifest `json:"manifest,omitempty"` // of manifest and done
	Have     []string  `json:"have,omitempty"`     // of go: hashes of files that the store has
	Staging  string    `json:"staging,omitempty"`  // of go: the folder to write into

	MustProve bool `json:"must_prove,omitempty"` // of go: the source must let modelfetch read, before it takes a file that is here

	FetchedBytes int64  `json:"fetched_bytes,omitempty"` // of progress: so far, with what was there from an earlier try
	NetworkBytes int64  `json:"network_bytes,omitempty"` // of progress: what this process has received
	TotalBytes   int64  `json:"total_bytes,omitempty"`   // of progress
	Text         string `json:"text,omitempty"`          // of note: a message to people, such as that it waits

	Error *Error `json:"error,omitempty"` // of error

	Offset int64 `json:"offset,omitempty"` // of opened: from where the content is
}

// The reasons of errors.
const (
	ReasonInvalid           = "Invalid"           // the address or the manifest is wrong
	ReasonNotFound          = "NotFound"          // the source has no such model, revision or file
	ReasonAccessDenied      = "AccessDenied"      // the source needs a credential, or refuses the given one
	ReasonUnavailable       = "Unavailable"       // the source did not answer properly after several tries
	ReasonIntegrityMismatch = "IntegrityMismatch" // the received files are not those of the manifest
	ReasonCapacityExceeded  = "CapacityExceeded"  // the model exceeds the limit of the store or of its disk
	ReasonInternal          = "Internal"          // an error of this machine
)

// Error is why a model is not fetched.
type Error struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

func (e *Error) Error() string { return e.Detail }
