// Package gateway gives each instance its public port: a reverse proxy of the
// launcher that listens where clients expect the model server and forwards to
// the engine, which listens on loopback only.
//
// The proxy does three things a bare one does not.
//
// It filters paths. The engine serves developer calls (/sleep,
// /collective_rpc, …) on the same port as inference, without asking for the
// API key; see Classify for what passes.
//
// It has a gate. Inference requests flow while it is open, wait while it is
// shut, and are refused when the engine has failed. What is asked of the proxy
// in each state:
//
//	            open             shut                      failed           closed
//	Open        -                open; held ones flow      open             -
//	Shut        shut             new reason                shut             -
//	Fail        failed           failed; held ones: 503    new reason       -
//	Drain       ErrOpen          waits, then cuts          waits, then cuts waits, then cuts
//	inference   to the engine    held; 429 when full,      503 at once      503 at once
//	                             503 when held too long
//	read-only   to the engine    to the engine             503 at once      503 at once
//
// A new proxy is shut. A read-only request to an engine that does not listen
// yet gets a 503. A held request whose client leaves gives its place back; for
// that up to a megabyte of its body is read meanwhile.
//
// It counts. Admission and the count of requests in flight change under one
// lock, so once Shut has returned no inference request can reach the engine
// without Drain waiting for it. What it counts is requests: work that the engine
// goes on with after its answer (a response of /v1/responses with
// "background":true) is not seen.
//
// Answers that the proxy makes itself have the error body of the OpenAI API,
// with the type names vLLM uses.
package gateway
