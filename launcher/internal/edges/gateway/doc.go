// Package gateway gives each instance its public port. A reverse proxy of the
// launcher listens where clients expect the model server. It forwards requests to
// the engine, which listens on a Unix socket, or on loopback only.
//
// The proxy adds three things to a plain reverse proxy.
//
// It filters paths. The engine serves developer calls (/sleep,
// /collective_rpc, …) at the same address as inference, and does not ask for the
// API key there. Classify decides which paths pass.
//
// It has a gate. An open gate lets inference requests through, a shut gate holds
// them, and a failed gate refuses them. The table has each call in each state of
// the gate:
//
//	            open             shut                      failed           closed
//	Open        -                open; admits held ones    open             -
//	Shut        shut             new reason                shut             -
//	Fail        failed           failed; held ones: 503    new reason       -
//	Drain       ErrOpen          waits, then cuts          waits, then cuts waits, then cuts
//	inference   to the engine    held; 429 when full,      503 at once      503 at once
//	                             503 when held too long
//	read-only   to the engine    to the engine             503 at once      503 at once
//
// A new proxy is shut. A read-only request to an engine that does not listen
// yet gets a 503. A held request whose client leaves frees its place. To notice
// that, the proxy reads up to a megabyte of the request's body while it is held. If it
// refuses the request before the body is there, the connection ends with the answer.
//
// It counts requests. The gate admits and counts a request under one lock. So once
// Shut has returned, Drain waits for every inference request that can still reach
// the engine. The proxy does not see work that the engine continues after its
// answer, such as a response of /v1/responses with "background":true. A WebSocket is one
// request, which ends when one side closes it. If it is cut, its client gets a close frame.
//
// The proxy's own answers have the error body of the OpenAI API, with vLLM's names
// for the types of errors.
package gateway
