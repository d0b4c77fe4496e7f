// Package decide says what becomes of a server-requesting Pod. It sees an [Observation], and
// answers with one [Step] and why. It has no clock, no client and no memory.
//
// Each file leaving.go, unbinding.go, … has one table of spec/binding.md, and the conditions of
// its rows. A condition may rest on the sentence of its table and on the rows above it.
package decide
