// Package modelvolume lets Pods of any namespace mount the models of ClusterModelCaches,
// read-only. Where a Pod names the claim of a cache, that claim is made in its namespace,
// and a volume for it, which is the model's folder on the nodes; both go when no Pod
// names the claim any more. [Decide] says what is made and deleted.
package modelvolume
