package modelsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// web is one file at a server. If the address ends with a slash, it is the files that
// manifest.json there lists: {"files": [{"path", "size", "sha256"}]}.
type web struct {
	*caller
	address *url.URL
	files   []fetchapi.File
	version version // of the one file
}

func newWeb(u *url.URL, o Options) (Source, error) {
	if u.Host == "" {
		return nil, invalid("the address %q names no host", u)
	}
	if err := encrypted(u); err != nil {
		return nil, err
	}
	return &web{caller: newCaller(u, o), address: u}, nil
}

func (s *web) isFolder() bool { return strings.HasSuffix(s.address.Path, "/") || s.address.Path == "" }

func (s *web) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	if s.isFolder() {
		return s.resolveFolder(ctx)
	}
	// GET without reading the body: after a redirect, a host may refuse HEAD.
	resp, err := s.do(ctx, s.address.String(), nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if end := strings.ToLower(path.Ext(s.address.Path)); kind == "text/html" && end != ".html" && end != ".htm" {
		return nil, invalid("%s is a page for people, and not a file: give the address of the file itself, or hf://org/name for a model of the hub", s.address)
	}
	if resp.ContentLength < 0 {
		return nil, invalid("%s gives no size for the file, so no room can be promised for it", s.address.Host)
	}
	s.version = versionOf(resp.Header)
	s.files = []fetchapi.File{{Path: path.Base(s.address.Path), Size: resp.ContentLength}}
	m := &fetchapi.Manifest{URI: s.address.String(), Files: s.files}
	if name := s.version.revision(); name != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, resp.ContentLength))
		m.Revision = hex.EncodeToString(sum[:])
	}
	return m, nil
}

func (s *web) resolveFolder(ctx context.Context) (*fetchapi.Manifest, error) {
	address := s.address.JoinPath("manifest.json").String()
	text, err := s.text(ctx, address)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(text) {
		return nil, invalid("%s is not UTF-8", address)
	}
	var list struct{ Files []fetchapi.File }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, invalid("cannot read %s as a list of files: %v", address, err)
	}
	for _, f := range list.Files {
		if f.SHA256 == "" {
			return nil, invalid("%s has no sha256 for the file %q", address, f.Path)
		}
	}
	s.files = list.Files
	sum := sha256.Sum256(text)
	return &fetchapi.Manifest{URI: s.address.String(), Revision: hex.EncodeToString(sum[:]), Files: s.files}, nil
}

func (s *web) Resumes() bool { return s.isFolder() || s.version.tag != "" }

func (s *web) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	if !s.isFolder() {
		if !s.Resumes() { // the rest could be of another version
			offset = 0
		}
		return s.open(ctx, s.address.String(), offset, s.version)
	}
	address := s.address.JoinPath(escaped(s.files[n].Path))
	stream, err := s.open(ctx, address.String(), offset, version{})
	if e, ok := errors.AsType[*fetchapi.Error](err); ok && e.Reason == fetchapi.ReasonNotFound {
		return nil, reasonf(fetchapi.ReasonNotFound, "manifest.json lists %s, but %s", s.files[n].Path, e.Detail)
	}
	return stream, err
}

// escaped escapes a path, so that JoinPath keeps it as it is.
func escaped(name string) string {
	parts := strings.Split(name, "/")
	for n := range parts {
		parts[n] = url.PathEscape(parts[n])
	}
	return strings.Join(parts, "/")
}
