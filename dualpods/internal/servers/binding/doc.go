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
//
// In a pass, a requester goes through these files in this order, and from observe to act until no
// step is left:
//
//	watches     what changes in the cluster begins a pass over a node
//	controller  Reconcile
//	world       the Pods of the node, as the cache has them or as they were written last
//	ask         what the kubelet and the requester programs say
//	watched     launchers are watched from here on
//	current     before its first step on a node, a process knows what an earlier one wrote
//	serve       the requesters in their order
//	observe     what the requester's Pod says
//	candidate   the launcher and the instance that it has, or may get
//	effects     what came of earlier calls and writes
//	            here package decide answers a step
//	act         the step is taken: call has the calls, status what is told, batch the new
//	            records, write the writes
//	tidy        launchers: their finalizers, their strays, what is told on them
//
// The file node has what is known from pass to pass, and calls what outlives a pass.
package binding
