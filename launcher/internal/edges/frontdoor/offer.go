package frontdoor

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

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

// NewOffers works out what the models of a catalogue need. The error is a [catalogue.Faults]
// with every model whose engine refuses its arguments.
func NewOffers(c *catalogue.Catalogue, instances Instances) (*Offers, error) {
	all := &Offers{catalogue: c}
	gpus := []string{}
	for _, g := range instances.GPUs().GPUs {
		gpus = append(gpus, g.UUID)
	}
	var faults catalogue.Faults
	for _, m := range c.Models {
		o := offer{Model: m, id: idOf(m.Name), digest: digestOf(m)}
		if err := o.plan(instances, gpus); err != nil {
			faults = append(faults, catalogue.Fault{Place: c.CommandPlace(m.Name), Problem: fmt.Sprintf("model %s: %v", m.Name, err)})
		}
		all.models = append(all.models, o)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return all, nil
}

// plan works out how many GPUs the model needs, of those that there are, and how much of each.
func (o *offer) plan(instances Instances, gpus []string) (err error) {
	o.count, o.bytes, err = instances.Plan(o.spec(o.GPUs.UUIDs))
	if err != nil {
		return err
	}
	o.count = cmp.Or(len(o.GPUs.UUIDs), o.GPUs.Count, o.count)
	switch {
	case o.count > len(gpus):
		return fmt.Errorf("it needs %d GPUs, and the launcher has %d", o.count, len(gpus))
	case len(o.GPUs.UUIDs) == 0: // with the right number of GPUs the engine looks closer
		_, _, err = instances.Plan(o.spec(gpus[:o.count]))
	}
	return err
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// mostOfName is how much of a model's name its instance's id has.
const mostOfName = 100

// idOf returns the id of the instance of a model. It is the model's name, as far as an id may have
// it; otherwise a digest of the name follows. So it depends on no other model, and a model keeps its
// instance whatever becomes of the others.
func idOf(model string) string {
	id := strings.TrimLeft(notInID.ReplaceAllString(model, "-"), "._-")
	id = id[:min(len(id), mostOfName)]
	if id != model {
		sum := sha256.Sum256([]byte(model))
		id += "." + hex.EncodeToString(sum[:4])
	}
	return "m-" + id
}

// digestOf returns a digest of what the engine of a model is started with: of the fields whose
// change is a [catalogue.Restart].
func digestOf(m catalogue.Model) string {
	of := []any{m.Engine, m.Words(), m.GPUs, m.EnvVars(os.LookupEnv)}
	if m.GPUMemory > 0 { // else the digest is as before there was that field
		of = append(of, m.GPUMemory)
	}
	text, err := json.Marshal(of)
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
	if o.GPUMemory > 0 {
		s.Annotations[launcherapi.AnnotationGPUMemory] = strconv.FormatInt(o.GPUMemory, 10)
	}
	if o.Options != "" {
		s.Options = &o.Options
	} else {
		s.Args = append([]string{}, o.Args...)
	}
	return s
}

// Len returns how many models there are.
func (o *Offers) Len() int { return len(o.models) }

// byName returns the model of that name; nil: the catalogue has none.
func (o *Offers) byName(name string) *offer {
	n := slices.IndexFunc(o.models, func(m offer) bool { return m.Name == name })
	if n < 0 {
		return nil
	}
	return &o.models[n]
}
