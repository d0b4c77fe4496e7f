package fetchapi

// ClaimStore is the folder of a claim, a volume that a launcher or a Job of Kubernetes
// has mounted, in which `modelfetch pull` keeps models. The claim's other folders are
// left alone.
const ClaimStore = "hotseat-models"

// ClaimScheme begins the addresses of folders of claims, as pvc://CLAIM/folder.
const ClaimScheme = "pvc://"

// Outcome is what `modelfetch pull --result` writes when it ends: what is in the store
// now, or why not.
type Outcome struct {
	ID       string `json:"id,omitempty"`       // of the version
	Revision string `json:"revision,omitempty"` // of the source
	Bytes    int64  `json:"bytes,omitempty"`    // of its files
	Lacks    bool   `json:"lacks,omitempty"`    // the selection of its files leaves out what an engine may need
	Error    *Error `json:"error,omitempty"`    // nil: it is there, whole
}

// ReasonClaimNotWritable is an Outcome's alone: the store's folder may not be written.
const ReasonClaimNotWritable = "ClaimNotWritable"

// Statuses that `modelfetch pull` exits with, beside 0.
const (
	ExitRefused = 1 // why is in the outcome; another try at once meets the same
	ExitUsage   = 2 // it was called wrongly
	ExitBroken  = 3 // it was ended; another try goes on from there
)
