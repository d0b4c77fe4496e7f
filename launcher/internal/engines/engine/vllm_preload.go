package engine

// Recipe tells a preloader how to load an engine once and fork it.
type Recipe struct {
	Distribution string   `json:"distribution"` // whose version counts
	Modules      []string `json:"modules"`      // to be imported; when one cannot be, preloading fails
	Optional     []string `json:"optional_modules"`
	// Platform are modules to be imported where vLLM finds that platform, by its
	// device type.
	Platform map[string][]string `json:"platform_modules"`

	// ForkChildren has the engine's own processes forked as well.
	ForkChildren bool `json:"fork_children"`
	// InspectSeconds bounds the process in which a forked engine inspects the class of a
	// model. After that, the engine starts a new Python, as one that was executed does.
	InspectSeconds float64 `json:"inspect_seconds"`
	// NVMLSeconds bounds a call of NVML where another process makes it for the engine.
	NVMLSeconds float64 `json:"nvml_seconds"`
}

// Recipe of vLLM: the modules that `vllm serve` imports in its three processes. The
// preloader skips those that a release or a platform lacks.
func (v *VLLM) Recipe() Recipe {
	return Recipe{
		Distribution: "vllm", ForkChildren: true, InspectSeconds: 60, NVMLSeconds: 60,
		Modules: []string{
			"vllm.entrypoints.cli.main", "vllm.entrypoints.cli.serve", "vllm.entrypoints.openai.api_server",
			"vllm.v1.engine.core", "vllm.v1.engine.async_llm", "vllm.v1.executor.multiproc_executor",
		},
		Optional: optionalModules,
		Platform: map[string][]string{
			"cuda": {"vllm.v1.worker.gpu_worker"},
			"cpu":  {"vllm.v1.worker.cpu_worker", "vllm.v1.attention.backends.cpu_attn"},
		},
	}
}

// optionalModules are what the three processes of vLLM 0.30.0 were seen to
// import while they start, beyond what the modules of the recipe bring along:
// TestAForkedStartImportsHardlyAnything of test/vllm tells when more have come.
var optionalModules = []string{
	"transformers", "setproctitle", "pydantic.v1",
	"uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto", "uvicorn.lifespan.on",
	"model_hosting_container_standards.common.custom_code_ref_resolver",

	"vllm.entrypoints.cli.benchmark.main", "vllm.entrypoints.cli.collect_env", "vllm.entrypoints.cli.launch",
	"vllm.entrypoints.cli.openai", "vllm.entrypoints.cli.run_batch", "vllm.entrypoints.launchers.run_batch",
	"vllm.entrypoints.anthropic.api_router", "vllm.entrypoints.cohere.api_router",
	"vllm.entrypoints.generate.api_router", "vllm.entrypoints.generate.generative_scoring.api_router",
	"vllm.entrypoints.openai.chat_completion.api_router", "vllm.entrypoints.openai.completion.api_router",
	"vllm.entrypoints.openai.models.api_router", "vllm.entrypoints.openai.responses.api_router",
	"vllm.entrypoints.scale_out.derender.serving", "vllm.entrypoints.scale_out.render.serving",
	"vllm.entrypoints.scale_out.token_in_token_out.serving",
	"vllm.entrypoints.serve.dev.cache.api_router", "vllm.entrypoints.serve.dev.rlhf.api_router",
	"vllm.entrypoints.serve.dev.rpc.api_router", "vllm.entrypoints.serve.dev.server_info.api_router",
	"vllm.entrypoints.serve.dev.sleep.api_router", "vllm.entrypoints.serve.elastic_ep.api_router",
	"vllm.entrypoints.serve.instrumentator.metrics", "vllm.entrypoints.serve.instrumentator.offline_docs",
	"vllm.entrypoints.serve.lora.api_router", "vllm.entrypoints.serve.profile.api_router",
	"vllm.entrypoints.serve.tokenize.api_router", "vllm.entrypoints.serve.utils.fingerprint",
	"vllm.plugins.lora_resolvers.filesystem_resolver", "vllm.plugins.lora_resolvers.hf_hub_resolver",
	"vllm.renderers.hf",

	"vllm.distributed.elastic_ep.elastic_execute",
	"vllm.model_executor.layers.quantization.online.base",
	"vllm.model_executor.model_loader", "vllm.model_executor.models.registry",
	"vllm.v1.core.sched.async_scheduler", "vllm.v1.core.sched.scheduler",
}

// CommonEnv is the environment of an instance that asks for nothing special,
// without the variables of a single instance, such as its GPUs. base is the
// launcher's.
func (v *VLLM) CommonEnv(base []string) []string {
	env, _, err := environment(Request{BaseEnv: base}, ownVariables(nil))
	if err != nil {
		panic(err) // only a user's variables could be wrong, and there are none
	}
	return env
}
