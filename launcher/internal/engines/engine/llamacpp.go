package engine

import (
	"context"
	"net/http"
	"time"
)

// LlamaCpp is the adapter for llama-server, the server of llama.cpp. Facts about it were looked
// up in, and seen with, build 10434 (August 2026).
type LlamaCpp struct {
	caller
}

var _ Restarted = (*LlamaCpp)(nil)

// LlamaCppOptions configures a LlamaCpp.
type LlamaCppOptions struct {
	// Client makes the calls to engines. Default: a client without a time limit of
	// its own, since contexts bound every call.
	Client *http.Client
}

// NewLlamaCpp makes the adapter.
func NewLlamaCpp(o LlamaCppOptions) *LlamaCpp { return &LlamaCpp{newCaller(o.Client)} }

// Name is "llamacpp".
func (*LlamaCpp) Name() string { return "llamacpp" }

// llamaKeepAlive is how long llama-server keeps an idle connection open. No flag changes it.
const llamaKeepAlive = 5 * time.Second

// Paths leaves out those that change the engine or show other clients' prompts: /slots, /props,
// /lora-adapters, /models/load and /models/unload, /tools. Two below /v1/ name or end the answers
// of other clients.
func (*LlamaCpp) Paths() Paths {
	return Paths{
		Status: []string{"/health", "/v1/health", "/metrics", "/models", "/v1/models"},
		Inference: []string{
			"/completion", "/completions", "/chat/completions", "/embedding", "/embeddings", "/infill",
			"/rerank", "/reranking", "/tokenize", "/detokenize", "/apply-template",
		},
		Refused: []string{"/v1/chat/completions/control", "/v1/streams/lookup"},
	}
}

// Ready asks GET /health once. llama-server answers 503 while it loads its model.
func (l *LlamaCpp) Ready(ctx context.Context, base string) error {
	_, err := l.call(ctx, http.MethodGet, base, "/health", nil, "")
	return err
}
