package main

import (
	"fmt"
	"os"
	"strings"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/enginesim/internal/vllmerr"
)

// checkModel fails as vLLM does on a folder that is not there, on a gated
// model, and on settings that do not go with the model or the platform. Any
// name that is no absolute path loads.
func (c *config) checkModel() error {
	if c.sim.Gated {
		return vllmerr.New("OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/%[1]s.\n401 Client Error. (Request ID: Root=1-0)\n\nCannot access gated repo for url https://huggingface.co/%[1]s/resolve/main/config.json.\nAccess to model %[1]s is restricted. You must have access to it and be authenticated to access it. Please log in.", c.model)
	}
	if strings.HasPrefix(c.model, "/") {
		if info, err := os.Stat(c.model); err != nil || !info.IsDir() {
			return vllmerr.New("huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '%s'. Use `repo_type` argument if needed.", c.model)
		}
	}
	if c.sleepMode && onCPU() {
		return invalidModel("Sleep mode is not supported on current platform.")
	}
	if limit := c.sim.MaxModelLen; c.maxModelLen > limit && os.Getenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1" {
		return invalidModel(fmt.Sprintf("User-specified max_model_len (%d) is greater than the derived max_model_len (max_position_embeddings=%d.0 or model_max_length=None in model's config.json). To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used with extreme caution. If the model uses relative position encoding (RoPE), positions exceeding derived_max_model_len lead to nan. If the model uses absolute position encoding, positions exceeding derived_max_model_len will cause a CUDA array out-of-bounds error.", c.maxModelLen, limit))
	}
	return nil
}

// onCPU says whether this is vLLM's CPU platform: there are no simulated GPUs.
func onCPU() bool { return os.Getenv(simgpu.EnvDir) == "" }

func (c *config) workerClass() string {
	if onCPU() {
		return "CPUWorker"
	}
	return "Worker"
}

func invalidModel(why string) error {
	return vllmerr.Error("pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, " + why + " [type=value_error, input_value=ArgsKwargs((), {'model': ...nderer_num_workers': 1}), input_type=ArgsKwargs]\n    For further information visit https://errors.pydantic.dev/2.14/v/value_error")
}
