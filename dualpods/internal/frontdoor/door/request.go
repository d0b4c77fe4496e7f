package door

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/labels"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/access"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/connlimit"
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
	grant   access.Grant
	body    *inference.Body
	whole   bool // the body is in memory, so that it can be sent again
	content content
	model   *directory.Model
	adapter string
	prefix  string
	counted *demand.Request
	turn    *turn         // its place among the requests that wait; nil: it does not wait
	came    time.Time     // when it had to wait first
	waited  time.Duration // in all
	tried   []string      // Pods that have failed

	span trace.Span // of all of it
	hold hold       // its first wait

	failure  error  // why nothing was answered
	entry    string // whose replica answered
	status   int    // of that answer
	brokeOff bool   // that answer
}

// close gives back what the request has.
func (d *Door) close(q *request) {
	d.queues.leave(q.turn)
	if q.counted != nil {
		q.counted.Leave()
	}
	q.forget()
}

// The times that clients have for their bodies.
const (
	bodyTime  = 2 * time.Minute // for the model, or a body that is read as a whole
	pauseTime = time.Minute     // between two pieces of what is passed on as it comes
)

// slowly returns the error for a body that did not come in time.
func slowly(err error, within time.Duration) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return &inference.Error{Status: http.StatusRequestTimeout, Message: fmt.Sprintf("the body did not come within %s: send it faster", within)}
}

// read finds out which Model a request is for. A body that does not come has a bound in time, and its connection is
// among the first to be closed if there are too many.
func (d *Door) read(q *request) error {
	within := cmp.Or(d.opts.BodyTime, bodyTime)
	q.boundReading(within)
	defer q.boundReading(0)
	came := connlimit.AwaitBody(q.r)
	defer came()
	err := d.readModel(q)
	if e := (*inference.Error)(nil); errors.As(err, &e) && e.Code == inference.CodeNoMemory {
		e.Status = http.StatusTooManyRequests
	}
	return slowly(err, within)
}

func (d *Door) readModel(q *request) (err error) {
	if q.body, err = inference.ReadModel(q.r, inference.Limits{JSON: mostJSON, Form: mostForm, Memory: d.memory}); err != nil {
		return err
	}
	selector, err := among(q.r)
	if err != nil {
		return err
	}
	if err := d.find(q, selector); err != nil {
		return err
	}
	if err := hasFeature(q); err != nil {
		return err
	}
	if err := q.readAhead(); err != nil {
		return err
	}
	if q.model.ByPrefix {
		if err := q.complete(); err != nil {
			return err
		}
		q.prefix = q.adapter + "\x00" + beginning(q.body.Replay(), q.model.PrefixCharLength)
	}
	q.signs.Model = q.body.Model
	q.signs.Progress, err = progressOf(q)
	return err
}

// find finds the Model, among those that the client may ask.
func (d *Door) find(q *request, selector labels.Selector) (err error) {
	namespace := d.opts.Namespace(q.r.Host)
	fits := func(m *directory.Model) bool { return selector.Matches(m.Labels) }
	// An alias may be of several Models, and the names of others are none of the client's business.
	model, adapter, err := d.dir.Find(namespace, q.body.Model, func(m *directory.Model) bool { return fits(m) && q.grant.Allows(m.Key) })
	if err != nil {
		if _, _, not := d.dir.Find(namespace, q.body.Model, fits); not == nil {
			return errForbidden(q.body.Model)
		}
		if unknown, ok := errors.AsType[*inference.UnknownModel](err); ok {
			unknown.Where = "in the namespace " + namespace
		}
		return inference.ModelNotFound(err)
	}
	q.model, q.adapter, q.counted = model, adapter, d.opts.Own.Request(model.Key)
	return nil
}

func errForbidden(model string) error {
	return &inference.Error{Status: http.StatusForbidden, Param: "model", Message: fmt.Sprintf("the token is not for the model %q: GET /v1/models lists those that it is for", model)}
}

// readAhead reads the whole body, if it is not too large to be held.
func (q *request) readAhead() (err error) {
	if q.r.ContentLength > heldWhole {
		return nil
	}
	q.whole, err = q.body.Ahead(heldWhole)
	return err
}

// complete reads the whole body.
func (q *request) complete() error {
	if err := q.body.Complete(); err != nil {
		return err
	}
	q.whole = true
	return nil
}

// progressOf returns which signs of life a stream gets.
func progressOf(q *request) (inference.Progress, error) {
	progress, err := inference.ProgressOf(q.r)
	if err != nil || progress == inference.ProgressNone {
		return inference.ProgressNone, err
	}
	if err := q.complete(); err != nil {
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

// retryAfter returns when a client that cannot wait may try again.
func (d *Door) retryAfter(m *directory.Model, waited time.Duration) time.Duration {
	return d.starts.RetryAfter(m.Key.String(), inference.Start, waited, unknownWait)
}
