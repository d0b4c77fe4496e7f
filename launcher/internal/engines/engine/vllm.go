package engine

import (
	"net/http"
)

// VLLM is the adapter for `vllm serve`. Facts about it were looked up in, and
// seen with, vLLM 0.30.0.
type VLLM struct {
	caller
}

var _ Engine = (*VLLM)(nil)

// VLLMOptions configures a VLLM.
type VLLMOptions struct {
	// Client makes the calls to engines. Default: a client without a time limit of
	// its own, since contexts bound every call.
	Client *http.Client
}

// NewVLLM makes the adapter.
func NewVLLM(o VLLMOptions) *VLLM {
	return &VLLM{caller: newCaller(o.Client)}
}

// Name is "vllm".
func (*VLLM) Name() string { return "vllm" }

// TriedReleases of vLLM are the releases that `make test-vllm-matrix` tries, on
// CPUs. Others are expected to work as well: the launcher finds out from each what
// it can do, and does not go by its number.
var TriedReleases = []string{"0.30.0", "0.32.0", "0.26.0", "0.22.1"}
