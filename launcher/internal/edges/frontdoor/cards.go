package frontdoor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// card is what an engine tells of its model, in its own words.
type card struct {
	MaxModelLen  int             `json:"max_model_len,omitempty"` // told by vLLM
	Meta         json.RawMessage `json:"meta,omitempty"`          // told by llama-server
	Capabilities []string        `json:"capabilities,omitempty"`
}

// The words for capabilities that the front door knows. Ollama's API says vision where llama-server
// says multimodal.
const (
	canComplete   = "completion"
	canEmbed      = "embedding"
	canMultimodal = "multimodal"
)

// cards are the cards of the instances. An engine is asked for its card once, when it is awake.
type cards struct {
	kick chan struct{} // has room for one: an instance may have become awake

	mu  sync.Mutex
	all map[string]learnt // by instance
}

// learnt is the card of the instance that was created at a time.
type learnt struct {
	created time.Time
	card
}

// patienceForCard is how long an engine may take to tell its card.
const patienceForCard = 5 * time.Second

func newCards() *cards { return &cards{kick: make(chan struct{}, 1), all: map[string]learnt{}} }

// lookAgain has the cards of instances asked for that have become awake. It never blocks.
func (c *cards) lookAgain() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// of returns the card of an instance; empty: it is not known yet.
func (c *cards) of(i *launcherapi.Instance) card {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.all[i.InstanceID]; l.created.Equal(i.CreatedAt) {
		return l.card
	}
	return card{}
}

// learn asks engines for their cards until ctx ends.
func (f *FrontDoor) learn(ctx context.Context) {
	for {
		select {
		case <-f.cards.kick:
		case <-ctx.Done():
			return
		}
		all, _ := f.opts.Instances.List()
		f.cards.keep(all)
		for n := range all {
			if i := &all[n]; i.State == string(launcher.Awake) && !f.cards.has(i) {
				f.ask(ctx, i)
			}
		}
	}
}

func (c *cards) has(i *launcherapi.Instance) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, known := c.all[i.InstanceID]
	return known && l.created.Equal(i.CreatedAt)
}

// keep forgets the instances that are not there any more.
func (c *cards) keep(there []launcherapi.Instance) {
	kept := map[string]learnt{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range there {
		if l, known := c.all[there[n].InstanceID]; known {
			kept[there[n].InstanceID] = l
		}
	}
	c.all = kept
}

// ask asks the engine of an instance for its card, at the gate. An engine that gives no answer is
// asked again at the next change of an instance.
func (f *FrontDoor) ask(ctx context.Context, i *launcherapi.Instance) {
	handler := f.opts.Handlers(i.InstanceID)
	if handler == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, patienceForCard)
	defer stop()
	told, err := askCard(ctx, handler)
	if err != nil {
		f.opts.Logger.Debug("the engine does not tell what its model can do", "instance", i.InstanceID, "error", err)
		return
	}
	f.cards.mu.Lock()
	defer f.cards.mu.Unlock()
	f.cards.all[i.InstanceID] = learnt{i.CreatedAt, told}
}

func askCard(ctx context.Context, handler http.Handler) (card, error) {
	a, err := askGate(ctx, handler, http.MethodGet, modelsPath)
	if err != nil {
		return card{}, err
	}
	var told struct {
		Data   []card
		Models []struct{ Capabilities []string }
	}
	isList := a.status == http.StatusOK && json.Unmarshal(a.text.Bytes(), &told) == nil && len(told.Data) > 0
	if !isList { // such as for want of a key
		return card{}, nil
	}
	c := told.Data[0]
	if len(told.Models) > 0 {
		c.Capabilities = told.Models[0].Capabilities
	}
	if c.Capabilities == nil {
		c.Capabilities, err = capabilitiesByPaths(ctx, handler)
	}
	return c, err
}

// capabilitiesByPaths finds out what an engine can do that does not tell it, from the paths that it
// serves: vLLM has those of what its model can do. If it has both, as older releases always do,
// nothing is known.
func capabilitiesByPaths(ctx context.Context, handler http.Handler) ([]string, error) {
	var can []string
	for _, of := range []struct{ path, word string }{{"/v1/completions", canComplete}, {"/v1/embeddings", canEmbed}} {
		a, err := askGate(ctx, handler, http.MethodOptions, of.path)
		if err != nil {
			return nil, err
		}
		if a.status == http.StatusMethodNotAllowed { // of a path that is not there it is 404
			can = append(can, of.word)
		}
	}
	if len(can) > 1 {
		return nil, nil
	}
	return can, nil
}

// gateAnswer is an answer of the gate to the front door's own request.
type gateAnswer struct {
	header http.Header
	status int
	text   bytes.Buffer
}

func (a *gateAnswer) Header() http.Header { return a.header }

func (a *gateAnswer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

func (a *gateAnswer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.text.Len()+len(data) > mostOfCard {
		return 0, fmt.Errorf("the answer is longer than %d bytes", mostOfCard)
	}
	return a.text.Write(data)
}

const mostOfCard = 1 << 20

// askGate sends a request without a body through a gate.
func askGate(ctx context.Context, handler http.Handler, method, path string) (a *gateAnswer, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.RequestURI = path
	a = &gateAnswer{header: http.Header{}}
	defer func() {
		if broken := recover(); broken == http.ErrAbortHandler { //nolint:errorlint // the very value
			err = errors.New("the answer was broken off")
		} else if broken != nil {
			panic(broken)
		}
	}()
	inference.SetRequestID(a, r)
	handler.ServeHTTP(a, r)
	return a, ctx.Err()
}
