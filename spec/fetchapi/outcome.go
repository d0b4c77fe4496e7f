package fetchapi

// ClaimStore is the folder of a claim in which `modelfetch pull` keeps models. A claim is a
// volume that a launcher or a Kubernetes Job has mounted. No program of hotseat changes the
// claim's other folders.
const ClaimStore = "hotseat-models"

// ClaimScheme begins the addresses of folders of claims, as pvc://CLAIM/folder.
const ClaimScheme = "pvc://"

// Outcome is the file that `modelfetch pull --result` writes when it ends. It says which
// version is in the store now, or why the pull failed.
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
	ExitRefused = 1 // the outcome says why; another try at once would fail in the same way
	ExitUsage   = 2 // the arguments are wrong
	ExitBroken  = 3 // it was interrupted, or an error of this machine ended it; another try resumes from there
)
