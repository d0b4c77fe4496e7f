package supervisor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// emptyStore is a store without models.
type emptyStore struct{ Models }

func (emptyStore) Wanted(model, _ string, _ modelref.Need) (modelstore.Version, error) {
	return modelstore.Version{}, &modelstore.NotFoundError{Dir: "the store", Name: model}
}

// A model that is not pulled yet can be planned and cannot be made. Its part of a GPU is
// known only if that is a share.
func TestModelThatIsNotPulledCanBePlanned(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.opts.Models = emptyStore{}
		defer func() { r.opts.Models = nil }()
		for name, shared := range map[string]bool{"vllm": true, "llamacpp": false} {
			options := "hf://org/name"
			spec := launcherapi.InstanceSpec{Engine: name, Options: &options, GPUUUIDs: []string{r.opts.GPUs.Devices()[0].UUID}}
			gpus, bytes, err := r.Plan(spec)
			require.NoError(t, err, name)
			assert.Equal(t, 1, gpus, name)
			assert.Equal(t, shared, bytes > 0, name)
			_, err = r.Draft(launcher.CreateRequest{Spec: spec})
			assert.ErrorContains(t, err, "pull it first", name)
			spec.ModelCache = launcherapi.ModelCacheOff
			_, _, err = r.Plan(spec)
			assert.ErrorContains(t, err, "model_cache is off", "%s: this is no matter of a pull", name)
		}
	}, func(o *Options) {
		o.Engines = append(o.Engines, engine.NewLlamaCpp(engine.LlamaCppOptions{}))
		o.Programs["llamacpp"] = []string{"/bin/llama-server"}
	})
}
