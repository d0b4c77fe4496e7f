// Package act keeps the objects of Models: the InferenceServerConfigs and Deployments of their entries, the label
// of the Pods that serve, and the status. Package decide decides what is to be done.
package act
