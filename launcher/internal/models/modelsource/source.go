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
	// Resolve says what the model consists of now.
	Resolve(ctx context.Context) (*fetchapi.Manifest, error)
	// Open reads the n-th file of the manifest that Resolve gave last, from offset on.
	// The error is ErrChanged when the file is another since.
	Open(ctx context.Context, n int, offset int64) (*Stream, error)
}

// Stream is a file that is being read.
type Stream struct {
	io.ReadCloser
	Offset int64 // where it begins: as asked for, or 0 where the source cannot do that
	Size   int64 // of the whole file, as the source says now; -1: it does not say
}

// ErrChanged says that the source is not what Resolve saw any more.
var ErrChanged = errors.New("the source has changed since the fetch began")

// TemporaryError is one that another try may not meet.
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
	Programs    map[string]string // by scheme, those that are sources for schemes which are not here
	Note        func(text string) // told what such a program says to people
}

// remedy is what helps whom a source refuses: own, where the credentials are the
// process's own.
func (o Options) remedy(own string) string {
	if o.Credentials != nil {
		return "the credentials that were given may not read it: have them given the right, or give others"
	}
	return own
}

// New gives the source of an address. It asks nobody yet.
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
	}
	if store, ok := providers[u.Scheme]; ok {
		return newBucket(u, o, store)
	}
	if path, ok := o.Programs[u.Scheme]; ok {
		return newProgram(uri, u.Scheme, path, o)
	}
	return nil, invalid("the scheme of %q is not known; addresses are as hf://org/name@revision, https://host/path, file:///folder, pvc://claim/folder, s3://bucket/folder, gs://bucket/folder, azblob://container/folder or oci://registry/repository:tag, or of a scheme that a program is the source of (--model-source)", uri)
}

func reasonf(reason, format string, args ...any) error {
	return &fetchapi.Error{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return reasonf(fetchapi.ReasonInvalid, format, args...)
}
