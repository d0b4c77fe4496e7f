package form

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Form is an inference server as a launcher is asked for it.
type Form struct {
	Args        []string          // arguments of `vllm serve`, without --host and --port
	Env         map[string]string // environment of the engine, without what the launcher decides
	Image       string            // the image that vLLM is wanted from; empty where any launcher's will do
	Mounts      []dualpods.Mount  // what it needs to find mounted
	Annotations map[string]string // of the instance on its launcher
	ModelCache  string            // one of podmeta.ModelCacheModes; empty: the requester does not say
	Rank        podmeta.Rank      // of a server over several launchers

	Port           int32             // where the requester answers inference requests
	GPUs           int               // how many the requester holds
	LauncherConfig string            // name of the LauncherConfig that is asked for; empty where none is
	Generation     int64             // of the InferenceServerConfig; 0 of a patch
	Labels         map[string]string // to put on the requester while it is bound and ready

	// LeftAlone are the keys of labels that the input would set and that the
	// requester has with another value, sorted.
	LeftAlone []string
	// Ignored are the fields of the input that mean nothing for an instance of
	// a launcher, sorted.
	Ignored []string
}

// Need returns what the form needs a launcher of. The caller adds what only the Pod says:
// its namespace, its node, and the launcher that it was placed for.
func (f Form) Need() dualpods.LauncherNeed {
	return dualpods.LauncherNeed{Config: f.LauncherConfig, Image: f.Image, Mounts: f.Mounts}
}

// as returns the form as one rank of a server. A worker answers no requests, so its requester
// gets no labels by which Services select those that do.
func (f Form) as(rank podmeta.Rank) Form {
	if f.Rank = rank; rank.IsWorker() {
		f.Labels, f.LeftAlone = nil, nil
	}
	return f
}

// Hash identifies what runs: arguments, environment, image, from where the model comes
// where the requester says so, and which rank it is. GPUs, port, labels and annotations are no part of
// it. 32 hexadecimal digits.
func (f Form) Hash() string {
	text, err := json.Marshal(struct {
		Args       []string
		Env        []string
		Image      string
		ModelCache string `json:",omitempty"` // what runs keeps its name over an upgrade from before there was one
		Rank       string `json:",omitempty"` // likewise
	}{append([]string{}, f.Args...), pairs(f.Env), f.Image, f.ModelCache, f.Rank.String()})
	if err != nil {
		panic(err) // strings alone cannot fail
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// pairs lists a map, sorted by key; each name stands before its value.
func pairs(m map[string]string) []string {
	list := make([]string, 0, 2*len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, key, m[key])
	}
	return list
}

// tidy puts the form in the shape that is the same for both inputs.
func (f *Form) tidy() {
	for _, m := range []*map[string]string{&f.Env, &f.Annotations, &f.Labels} {
		if len(*m) == 0 {
			*m = nil
		}
	}
	slices.Sort(f.LeftAlone)
	slices.Sort(f.Ignored)
	f.Ignored = slices.Compact(f.Ignored)
	slices.SortFunc(f.Mounts, func(a, b dualpods.Mount) int { return strings.Compare(a.Path, b.Path) })
}

// theLaunchers are the variables that the launcher itself decides; whoever sets
// them sets nothing.
var theLaunchers = []string{"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "VLLM_SERVER_DEV_MODE"}
