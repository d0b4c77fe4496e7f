package merge

import (
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// sources are the schemes of addresses that an engine in a Pod of its own takes.
var sources = map[v1alpha1.ModelEngine][]string{
	v1alpha1.EngineVLLM:     {"hf", "pvc"},
	v1alpha1.EngineSGLang:   {"hf", "pvc"},
	v1alpha1.EngineLlamaCpp: {"hf", "pvc"},
	v1alpha1.EngineOLlama:   {"ollama", "pvc"},
}

// decided are the flags that the controller writes.
var decided = []string{"--served-model-name", "--served_model_name", "--alias", "-a", "--host", "--port", "--model", "-m", "--model-path", "-hf", "-hfr", "--hf-repo", "--uds", "--lora-modules"}

// problem returns why the entry cannot run; empty: it can.
func (e *Entry) problem() string {
	s := &e.Settings
	scheme, rest, _ := strings.Cut(s.URL, "://")
	switch {
	case s.URL == "":
		return "there is no url: say where the model comes from, such as hf://Qwen/Qwen3-0.6B"
	case !slices.Contains(e.schemes(), scheme):
		return fmt.Sprintf("url: %s takes models of %s, not %s://", e.runner(), strings.Join(e.schemes(), ":// and ")+"://", scheme)
	case scheme == "pvc" && !validClaimPath(rest):
		return fmt.Sprintf("url: %q names no file or folder of a claim: it should be pvc://CLAIM/PATH, and PATH has no parts such as ..", s.URL)
	case scheme == "ollama" && !modelref.ParseOllama(s.URL).IsValid():
		return "url: " + modelref.NoOllama(s.URL)
	case e.RunsIn.HasLauncher() && s.LauncherConfigName == "":
		return "no launchers run it: name a LauncherConfig in launcherConfigName, or in the ResourceProfile"
	case e.RunsIn == v1alpha1.RunsInPods && s.Image == "":
		return fmt.Sprintf("there is no image of the engine: set image, or images.%s in the ResourceProfile", s.Engine)
	case e.RunsIn.HasLauncher() && len(e.Profile.ResourceClaims) > 0:
		return "the ResourceProfile has resourceClaims, but launchers get their GPUs by nvidia.com/gpu in limits: name a ResourceProfile without resourceClaims"
	case len(e.Adapters) > 0 && s.Engine != v1alpha1.EngineVLLM:
		return fmt.Sprintf("adapters: %s serves none; only VLLM does", s.Engine)
	}
	for _, arg := range s.Args {
		if flag, _, _ := strings.Cut(arg, "="); slices.Contains(decided, flag) {
			return fmt.Sprintf("args: %s is decided by the controller: remove it", flag)
		}
	}
	return ""
}

// schemes returns those of the addresses that the entry may have.
func (e *Entry) schemes() []string {
	if e.RunsIn.HasLauncher() {
		return []string{"hf"}
	}
	return sources[e.Settings.Engine]
}

// runner names what takes the address, for people.
func (e *Entry) runner() string {
	if e.RunsIn.HasLauncher() {
		return "an entry that launchers run"
	}
	return string(e.Settings.Engine)
}

// validClaimPath reports whether a text is CLAIM/PATH, and the path stays in the claim.
func validClaimPath(text string) bool {
	claim, path, has := strings.Cut(text, "/")
	return has && claim != "" && path != "" && !slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return part == "" || part == "." || part == ".." })
}
