// Package serverconfig tells in the status of an InferenceServerConfig whether it
// can be used, how many Pods ask for it, how many of them are ready, and where
// instances of it sleep.
package serverconfig
