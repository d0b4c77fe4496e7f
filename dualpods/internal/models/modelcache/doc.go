// Package modelcache makes the launchers keep the models of ClusterModelCaches. Each pass
// reads everything, and [Decide] decides about the calls to launchers. The status of each
// cache reports the progress of the nodes.
package modelcache
