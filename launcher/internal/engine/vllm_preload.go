package engine

// Recipe is what a preloader has to know to load an engine once and fork it.
type Recipe struct {
	Distribution string   `json:"distribution"` // whose version counts
	Main         string   `json:"main"`         // module:function that the engine's command calls
	Modules      []string `json:"modules"`      // imported; one that fails makes preloading fail
	Optional     []string `json:"optional_modules"`
	// Platform is imported where vLLM finds that platform, by its device type.
	Platform map[string][]string `json:"platform_modules"`

	// ForkChildren has the engine's own processes forked as well. Where that
	// needs a patch it is made for Versions alone.
	ForkChildren bool     `json:"fork_children"`
	Versions     []string `json:"versions"`
}

// Recipe of vLLM: what `vllm serve` imports in its three processes, checked
// against 0.30.0. What other versions or platforms lack is left out by itself.
func (v *VLLM) Recipe() Recipe {
	return Recipe{
		Distribution: "vllm", Main: "vllm.entrypoints.cli.main:main", ForkChildren: true, Versions: []string{"0.30.0"},
		Modules: []string{
			"vllm.entrypoints.cli.main", "vllm.entrypoints.cli.serve", "vllm.entrypoints.openai.api_server",
			"vllm.v1.engine.core", "vllm.v1.engine.async_llm", "vllm.v1.executor.multiproc_executor",
		},
		Optional: []string{
			"vllm.model_executor.model_loader", "vllm.model_executor.models.registry",
			"transformers", "setproctitle",
		},
		Platform: map[string][]string{
			"cuda": {"vllm.v1.worker.gpu_worker"},
			"cpu":  {"vllm.v1.worker.cpu_worker"},
		},
	}
}

// CommonEnv is the environment of an instance that asks for nothing special,
// without what is its own, such as its GPUs. base is the launcher's.
func (v *VLLM) CommonEnv(base []string) []string {
	env, _, err := environment(Request{BaseEnv: base})
	if err != nil {
		panic(err) // no user's variable is in it that could be wrong
	}
	return env
}
