package frontdoor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Offers are the models of a catalogue, with what the launcher needs to start them.
type Offers struct {
	catalogue *catalogue.Catalogue
	models    []offer
}

// offer is a model of the catalogue.
type offer struct {
	catalogue.Model
	id     string // of its instance
	digest string // of what its engine is started with
	count  int    // GPUs
	bytes  uint64 // device memory of each
}

// NewOffers works out what the models of a catalogue need. The error names every model whose
// engine refuses its arguments.
func NewOffers(c *catalogue.Catalogue, instances Instances) (*Offers, error) {
	all := &Offers{catalogue: c}
	taken := map[string]bool{}
	var faults []string
	for _, m := range c.Models {
		o := offer{Model: m, id: freeID(m.Name, taken), digest: digestOf(m)}
		count, bytes, err := instances.Plan(o.spec(m.GPUs.UUIDs))
		if err != nil {
			faults = append(faults, fmt.Sprintf("model %s: %v", m.Name, err))
			continue
		}
		o.count, o.bytes = count, bytes
		switch {
		case len(m.GPUs.UUIDs) > 0:
			o.count = len(m.GPUs.UUIDs)
		case m.GPUs.Count > 0:
			o.count = m.GPUs.Count
		}
		all.models = append(all.models, o)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(faults, "\n"))
	}
	return all, nil
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// freeID returns an id for the instance of a model: its name, as far as an id may have it.
func freeID(model string, taken map[string]bool) string {
	id := strings.TrimLeft(notInID.ReplaceAllString(model, "-"), "._-")
	id = "m-" + id[:min(len(id), 100)]
	for n := 2; taken[id]; n++ {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	taken[id] = true
	return id
}

// digestOf returns a digest of what the engine of a model is started with.
func digestOf(m catalogue.Model) string {
	text, err := json.Marshal([]any{m.Engine, m.Options, m.Args, m.GPUs, m.EnvVars(os.LookupEnv), m.StartMethod})
	if err != nil {
		panic(err) // texts and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// spec describes the instance of a model on these GPUs.
func (o *offer) spec(gpus []string) launcherapi.InstanceSpec {
	s := launcherapi.InstanceSpec{
		Engine: o.Engine, GPUUUIDs: gpus, EnvVars: o.EnvVars(os.LookupEnv), StartMethod: o.StartMethod,
		Annotations: map[string]string{launcherapi.AnnotationModel: o.Name, launcherapi.AnnotationModelDigest: o.digest},
	}
	if o.Pinned {
		s.Annotations[launcherapi.AnnotationPinned] = "true"
	}
	if o.Options != "" {
		s.Options = &o.Options
	} else {
		s.Args = append([]string{}, o.Args...)
	}
	return s
}

// sleepAfter returns after how long without a request the model falls asleep, and at which level.
func (o *offer) sleepAfter() (after time.Duration, level int) {
	for _, l := range slices.Sorted(maps.Keys(o.SleepAfter)) {
		if d := o.SleepAfter[l]; after == 0 || d < after {
			after, level = d, l
		}
	}
	return after, level
}

// byName returns the model of that name; nil: the catalogue has none.
func (o *Offers) byName(name string) *offer {
	n := slices.IndexFunc(o.models, func(m offer) bool { return m.Name == name })
	if n < 0 {
		return nil
	}
	return &o.models[n]
}
