// Package decide says what becomes of a server-requesting Pod. It sees an [Observation], and
// answers with one [Step] and why. It has no clock, no client and no memory.
//
// Each file leaving.go, unbinding.go, … has one table of spec/binding.md, and the conditions of
// its rows. The rows of a table read a value that has what they may read: a [Bound] requester has a
// record and a launcher, a [Recording] one has no record to read. So each row can be read by
// itself. Where several rows of a table hold, the first decides, and the table says how its rows
// are ordered. [see] makes the values, and so chooses the tables.
package decide
