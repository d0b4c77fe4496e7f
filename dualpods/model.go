package dualpods

// ModelKeeper is the ClusterModelCache of a requester's model. The engine is then
// served from the launcher's own copy alone.
type ModelKeeper struct {
	Name  string
	Waits bool   // the requester waits for the copy; otherwise a start without one fails
	Node  string // how far the requester's node is with its copy, in words
}
