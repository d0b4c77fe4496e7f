// Package vllmerr makes errors whose text is vLLM's own, capitals, full stops
// and all, because clients, logs and their readers see it as it is.
package vllmerr

import "fmt"

// Error is such an error. Two of the same text are equal.
type Error string

func (e Error) Error() string { return string(e) }

// New makes an error of a format.
func New(format string, args ...any) error { return Error(fmt.Sprintf(format, args...)) }
