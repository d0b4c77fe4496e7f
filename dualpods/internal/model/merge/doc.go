// Package merge reads the entries of a Model: each with what it inherits, what runs it, and what is wrong with
// it. It is pure.
package merge
