// Package binding decides what becomes of a server-requesting Pod: Observe reads
// the world once into an [Observation], [Decide] answers purely with one [Step]
// and why, one write carries it out, and the event that the write makes begins
// the next pass. The table of Decide is spec/binding.md, row for row.
//
// Words used here:
//
//	requester  the server-requesting Pod, which holds the GPUs
//	launcher   the server-providing Pod of the requester's node
//	record     an annotation of the launcher Pod: which requester has which
//	           instance on which GPUs. The requester is bound while it is there
//	attempt    one swap asked of the launcher for a record; its number and the
//	           requester's UID are, with the record's time, the swap's
//	           idempotency key
package binding
