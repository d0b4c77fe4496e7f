// Package vllm shows the launcher at work with real vLLM: each test drives the
// built launcher over HTTP, and the engines are those that test/vllm-cpu sets
// up. It is built with the tag vllm only, since a start of vLLM takes most of a
// minute; test/e2e shows the same, and much more, with the stand-in.
package vllm
