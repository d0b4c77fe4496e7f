// Package conformance holds the stand-in of test/enginesim beside real vLLM.
//
// The same is done to both: one conversation over HTTP, deaths of each of the
// processes, starts that fail. What a client and a supervisor see of it is
// written down, with what may differ (ids, times, the words of a model) left
// out. The folder testdata holds what real vLLM showed.
//
//	go test ./test/conformance                      the stand-in against the record
//	go test -tags vllm ./test/conformance           and real vLLM against the record
//	go test -tags vllm ./test/conformance -update   record anew from real vLLM
package conformance
