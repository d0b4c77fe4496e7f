// Package workload builds the objects of an entry of a Model: an InferenceServerConfig and a Deployment of
// requesters, or a Deployment of Pods that run the engine themselves. It is pure.
package workload
