package engine

// Paths are those of vLLM 0.30.0 (the api_router.py files below vllm/entrypoints). Its API
// server answers status paths without the model, also while it sleeps.
//
// Two paths below /v1/ change the engine: vLLM serves them when VLLM_ALLOW_RUNTIME_LORA_UPDATING
// is set, and loads weights from a path that the caller names. An instance serves only the
// adapters of its --lora-modules.
func (*VLLM) Paths() Paths {
	return Paths{
		Status: []string{"/health", "/ping", "/version", "/metrics", "/load", "/v1/models"},
		Inference: []string{
			"/tokenize", "/detokenize", "/invocations", "/pooling", "/classify", "/score", "/rerank",
			"/v2/rerank", "/v2/embed", "/cohere/v2/chat", "/generative_scoring", "/inference/v1/generate",
		},
		Refused: []string{"/v1/load_lora_adapter", "/v1/unload_lora_adapter"},
	}
}
