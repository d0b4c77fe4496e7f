// Package hubserver is a server that answers as the Hugging Face hub does, as far as
// models are downloaded from it, and that goes wrong when it is told to. That it
// answers as the hub does is shown by the hub's own client.
package hubserver

import (
	"bytes"
	"cmp"
	"crypto/sha1" // by which Git names files
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Hub serves models. Files whose names end in .safetensors come from a content host
// of its own, as large files do.
type Hub struct {
	URL string

	content *httptest.Server

	mu      sync.Mutex
	models  map[string]*Model
	token   string
	open    bool              // what there is, is told without it
	breaks  map[string]broken // where the next answer with a file breaks off, by the file's name
	trouble []Trouble
	seen    []Request
}

// Model is one version of a model.
type Model struct {
	Commit string
	Files  map[string][]byte
	// Announce changes what is said of the files, after everything else.
	Announce func(siblings []map[string]any) []map[string]any
}

// Trouble is an answer in place of the right one.
type Trouble struct {
	Status     int
	RetryAfter string
}

// Request is one that came in.
type Request struct {
	Method, Path, Range string
	Content             bool // at the content host
	Authorization       string
	Sent                int64 // bytes of the body
	At                  time.Time
}

// New starts a hub without models, until the test ends.
func New(tb testing.TB) *Hub {
	tb.Helper()
	return serve(tb, func(h http.Handler) *httptest.Server { return httptest.NewServer(h) })
}

// NewTLS starts one that others than this machine's own programs reach: it listens on
// what listen gives, encrypted.
func NewTLS(tb testing.TB, config *tls.Config, listen func() net.Listener) *Hub {
	tb.Helper()
	return serve(tb, func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		_ = s.Listener.Close() // nobody has heard of it
		s.Listener, s.TLS = listen(), config.Clone()
		s.StartTLS()
		return s
	})
}

func serve(tb testing.TB, start func(http.Handler) *httptest.Server) *Hub {
	tb.Helper()
	h := &Hub{models: map[string]*Model{}, breaks: map[string]broken{}}
	own := start(h.noting(false, h.serve))
	tb.Cleanup(own.Close)
	h.content = start(h.noting(true, h.serveContent))
	tb.Cleanup(h.content.Close)
	h.URL = own.URL
	return h
}

// Put adds a model, or takes another version's place.
func (h *Hub) Put(name string, m Model) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.models[name] = &m
}

// Gate asks for a token from now on, as for private models.
func (h *Hub) Gate(token string) { h.gate(token, false) }

// GateFiles asks for a token for files alone, as for gated models: what files there
// are is told to anybody.
func (h *Hub) GateFiles(token string) { h.gate(token, true) }

func (h *Hub) gate(token string, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.token, h.open = token, open
}

// Cut cuts the next answer with the file off after so many bytes.
func (h *Hub) Cut(file string, after int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.breaks[file] = broken{after: after}
}

// Hold has the next answer with the file stand still after so many bytes, until its client
// goes away. The channel is closed when it does.
func (h *Hub) Hold(file string, after int64) (stands <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{})
	h.breaks[file] = broken{after, c}
	return c
}

// broken says where an answer breaks off.
type broken struct {
	after  int64         // bytes; 0: it does not
	stands chan struct{} // closed then, and the client goes away first; nil: the connection breaks at once
}

// Answer gives the next requests these answers.
func (h *Hub) Answer(t ...Trouble) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble = append(h.trouble, t...)
}

// Seen are the requests that have come and been answered since the last call.
func (h *Hub) Seen() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	h.seen = nil
	return seen
}

// counted counts the bytes of an answer.
type counted struct {
	http.ResponseWriter
	sent int64
	broken
	gone <-chan struct{} // closed when the client has gone
}

func (c *counted) Write(p []byte) (int, error) {
	if c.after > 0 && c.sent+int64(len(p)) > c.after {
		n, _ := c.ResponseWriter.Write(p[:c.after-c.sent])
		c.sent += int64(n)
		if c.stands != nil {
			_ = http.NewResponseController(c.ResponseWriter).Flush() // the client is there, or has gone
			close(c.stands)
			<-c.gone
		}
		panic(http.ErrAbortHandler)
	}
	n, err := c.ResponseWriter.Write(p)
	c.sent += int64(n)
	return n, err
}

func (h *Hub) noting(content bool, next func(w *counted, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &counted{ResponseWriter: w}
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.seen = append(h.seen, Request{r.Method, r.URL.Path, r.Header.Get("Range"), content, r.Header.Get("Authorization"), c.sent, time.Now()})
		}()
		if t, ok := h.nextTrouble(); ok {
			if t.RetryAfter != "" {
				w.Header().Set("Retry-After", t.RetryAfter)
			}
			http.Error(w, "trouble", t.Status)
			return
		}
		next(c, r)
	})
}

func (h *Hub) nextTrouble() (Trouble, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.trouble) == 0 {
		return Trouble{}, false
	}
	t := h.trouble[0]
	h.trouble = h.trouble[1:]
	return t, true
}

// serve answers at the hub's own host.
func (h *Hub) serve(w *counted, r *http.Request) {
	h.mu.Lock()
	token := h.token
	if h.open && strings.HasPrefix(r.URL.Path, "/api/") {
		token = ""
	}
	h.mu.Unlock()
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.Header().Set("X-Error-Message", "Access to this model is restricted")
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/api/models/"); ok {
		if name, revision, ok := strings.Cut(name, "/tree/"); ok {
			h.tree(w, name, revision)
			return
		}
		name, revision, _ := strings.Cut(name, "/revision/")
		h.info(w, r, name, cmp.Or(revision, "main"))
		return
	}
	name, rest, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/resolve/")
	revision, file, found := strings.Cut(rest, "/")
	if !ok || !found {
		http.NotFound(w, r)
		return
	}
	h.file(w, r, name, revision, file)
}

// model gives a version of a model, or says that there is none.
func (h *Hub) model(w http.ResponseWriter, name, revision string) *Model {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.models[name]
	switch {
	case m == nil:
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.Header().Set("X-Error-Message", "Repository not found")
	case revision != "main" && revision != m.Commit:
		w.Header().Set("X-Error-Code", "RevisionNotFound")
		w.Header().Set("X-Error-Message", "Invalid rev id: "+revision)
	default:
		return m
	}
	w.WriteHeader(http.StatusNotFound)
	return nil
}

func (h *Hub) info(w http.ResponseWriter, r *http.Request, name, revision string) {
	m := h.model(w, name, revision)
	if m == nil {
		return
	}
	siblings := []map[string]any{}
	for file, content := range m.Files {
		one := map[string]any{"rfilename": file}
		if r.URL.Query().Get("blobs") != "" {
			one["size"], one["blobId"] = len(content), gitHash(content)
			if isLarge(file) {
				one["lfs"] = map[string]any{"sha256": sum(content), "size": len(content), "pointerSize": 130}
			}
		}
		siblings = append(siblings, one)
	}
	if m.Announce != nil {
		siblings = m.Announce(siblings)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"_id": "1", "id": name, "modelId": name, "sha": m.Commit, "private": false, "tags": []string{}, "siblings": siblings})
}

// tree lists all files, of all folders.
func (h *Hub) tree(w http.ResponseWriter, name, revision string) {
	m := h.model(w, name, revision)
	if m == nil {
		return
	}
	list := []map[string]any{}
	for file, content := range m.Files {
		one := map[string]any{"type": "file", "path": file, "size": len(content), "oid": gitHash(content)}
		if isLarge(file) {
			one["lfs"] = map[string]any{"oid": sum(content), "size": len(content), "pointerSize": 130}
		}
		list = append(list, one)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

func (h *Hub) file(w *counted, r *http.Request, name, revision, file string) {
	m := h.model(w, name, revision)
	if m == nil {
		return
	}
	content, ok := m.Files[file]
	if !ok {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		http.NotFound(w, r)
		return
	}
	w.Header().Set("X-Repo-Commit", m.Commit)
	if isLarge(file) {
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(content)))
		w.Header().Set("X-Linked-ETag", `"`+sum(content)+`"`)
		w.Header().Set("Location", h.content.URL+"/"+name+"/-/"+file)
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("ETag", `"`+gitHash(content)+`"`)
	h.send(w, r, file, content)
}

// serveContent answers at the host of large files.
func (h *Hub) serveContent(w *counted, r *http.Request) {
	name, file, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/-/")
	h.mu.Lock()
	content := h.models[name].Files[file]
	h.mu.Unlock()
	w.Header().Set("ETag", `"`+sum(content)+`"`)
	h.send(w, r, file, content)
}

func (h *Hub) send(w *counted, r *http.Request, file string, content []byte) {
	h.mu.Lock()
	if r.Method == http.MethodGet {
		w.broken, w.gone = h.breaks[file], r.Context().Done()
		delete(h.breaks, file)
	}
	h.mu.Unlock()
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func isLarge(file string) bool { return strings.HasSuffix(file, ".safetensors") }

func sum(content []byte) string {
	h := sha256.Sum256(content)
	return hex.EncodeToString(h[:])
}

func gitHash(content []byte) string {
	h := sha1.New()
	_, _ = fmt.Fprintf(h, "blob %d\x00", len(content))
	_, _ = h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}
