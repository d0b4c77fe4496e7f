// Package act keeps the objects of Models: the InferenceServerConfigs and Deployments of their entries, the label
// of the Pods that serve, and the status. What is to be done is decided by package decide.
package act
