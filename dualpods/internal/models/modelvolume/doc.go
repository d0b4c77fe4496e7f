// Package modelvolume lets Pods of any namespace mount the models of ClusterModelCaches
// read-only. When a Pod names the claim of a cache, the controller creates that claim in the
// Pod's namespace. It also creates a volume for the claim: the model's folder on the nodes. The
// controller deletes both when no Pod names the claim any more. [Decide] decides what to create
// and delete.
package modelvolume
