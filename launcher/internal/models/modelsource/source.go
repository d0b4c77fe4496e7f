// Package modelsource reads models where they come from: one file for each scheme of
// addresses. Only modelfetch imports it.
package modelsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// Source is a model where it comes from.
type Source interface {
	// Resolve returns the manifest of the model as it is now.
	Resolve(ctx context.Context) (*fetchapi.Manifest, error)
	// Open reads the n-th file of the manifest that Resolve returned last, from offset on.
	// The error is ErrChanged if the file has changed since.
	Open(ctx context.Context, n int, offset int64) (*Stream, error)
	// Resumes reports whether a fetch may go on from what an earlier one has fetched of the
	// manifest that Resolve returned last: its files have hashes, or the source names their
	// version. Times name none: programs copy them with a file, or set them.
	Resumes() bool
}

// Stream is a file that is being read.
type Stream struct {
	io.ReadCloser
	Offset int64 // where it begins: as asked for, or 0 if the source cannot begin there
	Size   int64 // of the whole file, as the source says now; -1: it does not say
}

// ErrChanged says that the source has changed since Resolve.
var ErrChanged = errors.New("the source has changed since the fetch began")

// TemporaryError is an error after which another try may succeed.
type TemporaryError struct {
	Cause error
	After time.Duration // how long the source asks to wait; 0: it does not say
}

func (e *TemporaryError) Error() string { return e.Cause.Error() }

func (e *TemporaryError) Unwrap() error { return e.Cause }

// Options are what sources need beside the address.
type Options struct {
	Token string // a credential, for the host of the address alone
	// Credentials are those of the address's scheme, see [fetchapi.Credentials.For]. Nil:
	// those of the process's own environment and user.
	Credentials fetchapi.Credentials
	Claims      map[string]string // where claims are mounted, by their names
	HubEndpoint string            // address of the hub; "" means https://huggingface.co
	Stall       time.Duration     // how long a source may be silent
	Programs    map[string]string // the programs that are sources for other schemes, by scheme
	Note        func(text string) // called with the notes of such a program for people
}

// remedy returns what to do if the source refuses access: own, if the credentials are the
// process's own.
func (o Options) remedy(own string) string {
	if o.Credentials != nil {
		return "the given credentials may not read it: give them the right to read it, or give other credentials"
	}
	return own
}

// New returns the source of an address. It sends no request yet.
func New(uri string, o Options) (Source, error) {
	u, err := fetchapi.ParseAddress(uri)
	if err != nil {
		return nil, invalid("%v", err)
	}
	switch u.Scheme {
	case "file":
		return newFolder(u)
	case "pvc":
		return newClaim(u, o)
	case "https", "http":
		return newWeb(u, o)
	case "hf":
		return newHub(uri, o)
	case "oci":
		return newArtifact(uri, o)
	case "ollama":
		return newOllama(uri, o)
	}
	if store, ok := providers[u.Scheme]; ok {
		return newBucket(u, o, store)
	}
	if path, ok := o.Programs[u.Scheme]; ok {
		return newProgram(uri, u.Scheme, path, o)
	}
	return nil, invalid("unknown scheme of the address %q; write the address as hf://org/name@revision, https://host/path, file:///folder, pvc://claim/folder, s3://bucket/folder, gs://bucket/folder, azblob://container/folder, oci://registry/repository:tag or ollama://name:tag, or use a scheme that has a program as its source (--model-source)", uri)
}

func reasonf(reason, format string, args ...any) error {
	return &fetchapi.Error{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return reasonf(fetchapi.ReasonInvalid, format, args...)
}
