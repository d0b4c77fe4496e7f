package door

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// paths are those that are answered, with the features of Models that serve them.
var paths = map[string][]v1alpha1.ModelFeature{
	"/v1/chat/completions":      {v1alpha1.FeatureTextGeneration},
	"/v1/completions":           {v1alpha1.FeatureTextGeneration},
	"/v1/responses":             {v1alpha1.FeatureTextGeneration},
	"/v1/messages":              {v1alpha1.FeatureTextGeneration},
	"/v1/messages/count_tokens": {v1alpha1.FeatureTextGeneration},
	"/v1/embeddings":            {v1alpha1.FeatureTextEmbedding},
	"/v1/rerank":                {v1alpha1.FeatureReranking},
	"/v1/score":                 {v1alpha1.FeatureReranking},
	"/v1/audio/transcriptions":  {v1alpha1.FeatureSpeechToText},
	"/v1/audio/translations":    {v1alpha1.FeatureSpeechToText},
	"/tokenize":                 {v1alpha1.FeatureTextGeneration, v1alpha1.FeatureTextEmbedding, v1alpha1.FeatureReranking},
	"/detokenize":               {v1alpha1.FeatureTextGeneration, v1alpha1.FeatureTextEmbedding, v1alpha1.FeatureReranking},
}

// featureOf returns the features that serve a request; nil: none does.
func featureOf(r *http.Request) []v1alpha1.ModelFeature {
	if r.Method != http.MethodPost {
		return nil
	}
	return paths[r.URL.Path]
}

// request is a request for a Model.
type request struct {
	r       *http.Request
	signs   inference.Signs
	body    *inference.Body
	whole   bool // the body is in memory, so that it can be sent again
	model   *directory.Model
	adapter string
	turn    *turn // its place among the requests that wait; nil: it does not wait
	prefix  string
	tried   []string // Pods that have failed
	failure error    // why nothing was answered
	entry   string   // whose replica answered
	status  int      // of that answer

	reading sync.Mutex // held while the body is read
	began   bool       // it was read
}

func (q *request) close() {
	q.leaveQueue()
	q.reading.Lock()
	defer q.reading.Unlock()
	if q.body != nil {
		_ = q.body.Close() // it has no errors
	}
}

// Read reads the body once. The transport may still read when the answer has ended.
func (q *request) Read(p []byte) (int, error) {
	q.reading.Lock()
	defer q.reading.Unlock()
	q.began = true
	return q.body.Read(p)
}

// content returns the body for an attempt.
func (q *request) content() io.ReadCloser {
	if q.whole {
		return io.NopCloser(q.body.Replay())
	}
	return io.NopCloser(q)
}

// read finds out which Model a request is for.
func (d *Door) read(q *request) (err error) {
	if q.body, err = inference.ReadModel(q.r, inference.Limits{JSON: mostJSON, Form: mostForm, Memory: d.memory}); err != nil {
		return err
	}
	selector, err := among(q.r)
	if err != nil {
		return err
	}
	q.model, q.adapter, err = d.dir.Find(d.opts.Namespace(q.r.Host), q.body.Model, selector)
	if unknown := (*directory.UnknownModel)(nil); errors.As(err, &unknown) {
		return &inference.Error{Status: http.StatusNotFound, Message: err.Error(), Param: "model", Code: inference.CodeModelNotFound}
	}
	if err := hasFeature(q); err != nil {
		return err
	}
	if q.r.ContentLength <= heldWhole {
		if q.whole, err = q.body.Ahead(heldWhole); err != nil {
			return err
		}
		if q.whole {
			if err := q.body.Complete(); err != nil {
				return err
			}
		}
	}
	if q.model.ByPrefix {
		if err := d.readPrefix(q); err != nil {
			return err
		}
	}
	q.signs.Model = q.body.Model
	q.signs.Progress, err = progressOf(q)
	return err
}

// progressOf returns which signs of life a stream gets.
func progressOf(q *request) (inference.Progress, error) {
	progress, err := inference.ProgressOf(q.r)
	if err != nil || progress == inference.ProgressNone {
		return inference.ProgressNone, err
	}
	if err := q.body.Complete(); err != nil {
		return inference.ProgressNone, err
	}
	if streams, _ := q.body.Streams(); !streams {
		return inference.ProgressNone, nil
	}
	return progress, nil
}

// hasFeature returns an error if the Model does not do what the path is for.
func hasFeature(q *request) error {
	wanted := featureOf(q.r)
	if slices.ContainsFunc(wanted, q.model.Has) {
		return nil
	}
	names := make([]string, len(wanted))
	for i, f := range wanted {
		names[i] = string(f)
	}
	own := make([]string, len(q.model.Features))
	for i, f := range q.model.Features {
		own[i] = string(f)
	}
	return &inference.Error{
		Status: http.StatusBadRequest, Param: "model",
		Message: fmt.Sprintf("%s is for models with the feature %s; %s has %s", q.r.URL.Path, strings.Join(names, " or "), q.model.Key.Name, strings.Join(own, ", ")),
	}
}

// readPrefix reads what PrefixHash goes by: the adapter, and the beginning of the first message of the user, or
// of the prompt.
func (d *Door) readPrefix(q *request) error {
	if err := q.body.Complete(); err != nil {
		return err
	}
	q.whole = true
	q.prefix = q.adapter + "\x00" + beginning(q.body.Replay(), q.model.PrefixCharLength)
	return nil
}

const modelsPath = "/v1/models"

// listModels answers with the Models of a namespace.
func (d *Door) listModels(w http.ResponseWriter, r *http.Request) {
	selector, err := among(r)
	if e := (*inference.Error)(nil); errors.As(err, &e) {
		inference.WriteError(w, r, e)
		return
	}
	type entry struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
		Parent  string `json:"parent,omitempty"`
		State   string `json:"state"`
	}
	list := struct {
		Object string  `json:"object"`
		Data   []entry `json:"data"`
	}{"list", []entry{}}
	for _, m := range d.dir.List(d.opts.Namespace(r.Host), selector) {
		for i, name := range m.Names() {
			e := entry{ID: name, Object: "model", Created: m.Created.Unix(), OwnedBy: cmp.Or(m.Owner, "hotseat"), State: d.stateOf(m)}
			if i > 0 {
				e.Parent = m.Key.Name
			}
			list.Data = append(list.Data, e)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // an error is the client's
}

// The states of Models in the list.
const (
	stateReady   = "ready"
	stateWaiting = "waiting" // requests wait for it
	stateIdle    = "idle"    // nothing serves it, and nothing asks for it
)

func (d *Door) stateOf(m *directory.Model) string {
	switch {
	case len(d.dir.Serving(m.Key)) > 0:
		return stateReady
	case d.load(m).Held > 0:
		return stateWaiting
	}
	return stateIdle
}

// retryAfter returns when a client that cannot wait may try again.
func (d *Door) retryAfter(m *directory.Model, waited time.Duration) time.Duration {
	return d.starts.RetryAfter(m.Key.String(), inference.Start, waited, unknownWait)
}
