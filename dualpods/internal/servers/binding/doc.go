// Package binding serves server-requesting Pods. A pass over a node reads the world once, sees
// each requester as a decide.Observation, and carries out the step that package decide answers.
// The event that a write makes begins the next pass.
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
