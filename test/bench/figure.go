package main

import "hotseat.dev/hotseat/test/helpers/figures"

type (
	times = figures.Times
	row   = figures.Row
)

// Each table of the document stands after one of these lines.
const (
	fetchMark     = "<!-- fetches, written by `go run ./test/bench -write -only fetch` -->"
	weightsMark   = "<!-- weights, written by `go run ./test/bench -write -only weights` -->"
	beginMark     = "<!-- written by `go run ./test/bench -write` -->"
	firstsMark    = "<!-- first starts, written by `make bench-vllm` -->"
	tokensMark    = "<!-- first tokens, written by `go run ./test/bench -write -vllm DIR -only tokens` -->"
	startsMark    = "<!-- starts, written by `make bench-vllm` -->"
	realSwapsMark = "<!-- swaps, written by `make bench-vllm` -->"
)
