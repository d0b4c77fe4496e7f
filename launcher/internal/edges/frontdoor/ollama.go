package frontdoor

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/inference/ollama"
	"hotseat.dev/hotseat/launcher/internal/edges/browser"
)

const ollamaPrefix = "/api/"

// serveOllama answers a request of Ollama's API.
func (f *FrontDoor) serveOllama(w http.ResponseWriter, r *http.Request) {
	if err := browser.CheckSite(r); err != nil { // a page can send a body that it does not call JSON
		f.refuse(w, r, &inference.Error{Status: http.StatusForbidden, Message: err.Error()})
		return
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch path, _, _ := strings.Cut(r.RequestURI, "?"); { // as it is written, so in one spelling
	case read && path == "/api/version":
		writeJSON(w, map[string]string{"version": ollama.Version})
	case read && path == "/api/tags":
		writeJSON(w, map[string]any{"models": f.tags(func(listed) bool { return true })})
	case read && path == "/api/ps":
		writeJSON(w, map[string]any{"models": f.tags(func(m listed) bool { return m.State == string(launcher.Awake) })})
	case r.Method == http.MethodPost && (path == "/api/show" || ollama.Asks(path)):
		f.askOllama(w, r, path)
	default:
		f.refuse(w, r, inference.NotServed(r))
	}
}

// askOllama answers a request of Ollama's API that names a model.
func (f *FrontDoor) askOllama(w http.ResponseWriter, r *http.Request, path string) {
	body, err := inference.ReadModel(r, inference.Limits{JSON: mostJSON, Form: mostJSON, AnyContentType: true, Memory: f.memory})
	if err == nil {
		defer body.Close() // at the end: until then its share of the memory stands for its translation
		err = body.Complete()
	}
	var call *ollama.Call
	switch {
	case err != nil:
	case path == "/api/show":
		err = f.showOllama(w, body.Model)
	default:
		call, err = f.translate(path, body)
	}
	if err != nil {
		f.opts.Observer.FrontDoorRequest(outcomeOf(err))
		inference.WriteError(w, r, f.explain("", err))
		return
	}
	if call == nil {
		return
	}
	bring := f.pass
	if call.Load {
		bring = f.loadOnly
	}
	answer := call.Answer(w)
	f.answer(answer, asOpenAI(r, call), bring)
	_ = answer.Finish() // the client may be gone
}

func (f *FrontDoor) translate(path string, body *inference.Body) (*ollama.Call, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	return ollama.Translate(path, data, f.untagged(body.Model))
}

// asOpenAI returns the request as one of OpenAI's API.
func asOpenAI(r *http.Request, call *ollama.Call) *http.Request {
	out := r.Clone(r.Context())
	out.URL = &url.URL{Path: call.Path, RawQuery: r.URL.RawQuery}
	out.RequestURI = out.URL.RequestURI()
	out.Header.Set("Content-Type", "application/json")
	out.Header.Del("Accept-Encoding") // the answer is translated
	out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(call.Body)), int64(len(call.Body)), nil
	return out
}

// untagged returns the name of a model without the tag latest, which is the default of Ollama's
// clients, unless a model has that very name.
func (f *FrontDoor) untagged(name string) string {
	if _, err := f.resolve(name); err == nil {
		return name
	}
	return strings.TrimSuffix(name, ":latest")
}

// loadOnly waits until the model of a request is awake.
func (f *FrontDoor) loadOnly(q *request) error {
	chosen, ticket, err := f.enter(q.means)
	q.chosen = chosen
	if err != nil {
		return err
	}
	defer f.leave(ticket, nil)
	return f.await(q, ticket)
}

// tags returns the names that a model is asked for, as Ollama lists its models.
func (f *FrontDoor) tags(wanted func(listed) bool) []map[string]any {
	models := []map[string]any{}
	for _, m := range f.names() {
		if !wanted(m) {
			continue
		}
		digest := sha256.Sum256([]byte(m.ID)) // clients show its beginning
		models = append(models, map[string]any{
			"name": m.ID, "model": m.ID, "modified_at": time.Unix(m.Created, 0).UTC(), "expires_at": neverExpires,
			"size": m.bytes, "size_vram": m.bytes, "digest": hex.EncodeToString(digest[:]), "details": noDetails,
		})
	}
	return models
}

// neverExpires is when a model leaves its GPU: the front door decides that by what it is asked.
var neverExpires = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)

// noDetails are the details of each model: engines do not tell them.
var noDetails = map[string]any{
	"parent_model": "", "format": "", "family": "", "families": []string{}, "parameter_size": "", "quantization_level": "",
}

// showOllama answers what there is to say of one model.
func (f *FrontDoor) showOllama(w http.ResponseWriter, name string) error {
	name = f.untagged(name)
	all := f.names()
	n := slices.IndexFunc(all, func(m listed) bool { return m.ID == name })
	if n < 0 {
		_, err := f.resolve(name)
		return inference.ModelNotFound(err)
	}
	writeJSON(w, map[string]any{
		"modelfile": "", "parameters": "", "template": "", "details": noDetails, "model_info": map[string]any{},
		"modified_at": time.Unix(all[n].Created, 0).UTC(), "capabilities": all[n].ollamaCapabilities(),
	})
	return nil
}

// ollamaCapabilities says in Ollama's words what a model can do. Engines do not tell whether a model
// calls tools; a model of which nothing is known is one that completes.
func (c card) ollamaCapabilities() []string {
	var can []string
	if len(c.Capabilities) == 0 || slices.Contains(c.Capabilities, canComplete) {
		can = append(can, "completion", "tools")
	}
	if slices.Contains(c.Capabilities, canMultimodal) {
		can = append(can, "vision")
	}
	if slices.Contains(c.Capabilities, canEmbed) {
		can = append(can, "embedding")
	}
	return can
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
