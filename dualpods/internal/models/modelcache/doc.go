// Package modelcache has the launchers keep the models that ClusterModelCaches ask
// for. Each pass looks at everything there is, decides by [Decide] what is asked of
// which launcher, and tells in the status of each object how far the nodes are.
package modelcache
