package api

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io/fs"
	"net/http"
	"os"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/machine/regular"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/mtls"
)

// TokenFile lets requests through that have the token in a file. It is an Access,
// and may be used by several servers at once.
type TokenFile struct{ path string }

// OpenTokenFile makes a TokenFile of a file that has a token now: its content
// without the white space around it. The file is read again for every request, so
// that a token which is renewed on disk counts at once. While the file cannot be
// read, no request gets through.
func OpenTokenFile(path string) (*TokenFile, error) {
	t := &TokenFile{path: path}
	if _, err := t.read(); err != nil {
		return nil, fmt.Errorf("%w; write a token to it, or leave the option out", err)
	}
	return t, nil
}

func (t *TokenFile) read() ([]byte, error) {
	content, err := regular.ReadFile(t.path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the token file: %w", err)
	}
	token := bytes.TrimSpace(content)
	if len(token) == 0 {
		return nil, fmt.Errorf("cannot use the token file %s: it is empty", t.path)
	}
	return token, nil
}

// Exposed says whether every user of the machine may read the token, and the
// permissions of its file.
func (t *TokenFile) Exposed() (mode fs.FileMode, exposed bool, err error) {
	info, err := os.Stat(t.path)
	if err != nil {
		return 0, false, fmt.Errorf("cannot read the token file: %w", err)
	}
	return info.Mode().Perm(), info.Mode().Perm()&0o004 != 0, nil
}

// Allow returns nil for a request with "Authorization: Bearer <token>", and
// else an error of code unauthorized, or unavailable while the file cannot be
// read.
func (t *TokenFile) Allow(r *http.Request) error {
	want, err := t.read()
	if err != nil {
		return launcher.Unavailablef("cannot check tokens: %w", err)
	}
	given, ok := inference.BearerToken(r.Header)
	if !ok {
		return unauthorized("this launcher needs a token; send Authorization: Bearer <token>")
	}
	if !sameSecret(want, []byte(given)) {
		return unauthorized("wrong token")
	}
	return nil
}

// Certificate lets requests through whose client has shown a certificate that the
// launcher's --client-ca vouches for. It is an Access.
type Certificate struct {
	// Else decides about all other requests. Nil: they are refused.
	Else Access
}

// Allow returns nil for a request that came with a certificate, and else the answer
// of Else, or an error of code forbidden.
func (c Certificate) Allow(r *http.Request) error {
	switch {
	case mtls.Shown(r):
		return nil
	case c.Else != nil:
		return c.Else.Allow(r)
	}
	return &launcher.Error{Code: launcherapi.CodeForbidden, Detail: mtls.ErrNotShown.Error()}
}

func unauthorized(detail string) error {
	return &launcher.Error{Code: launcherapi.CodeUnauthorized, Detail: detail}
}

// sameSecret compares two secrets in a time that tells nothing of what they have in
// common, nor of their lengths.
func sameSecret(a, b []byte) bool {
	x, y := sha256.Sum256(a), sha256.Sum256(b)
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
