// Package podgroups has the scheduler of Volcano, or that of Kubernetes, give the Pods of a group
// nodes together. It keeps a PodGroup for each group of the ModelServings that they schedule, which
// says how many Pods are counted. spec/roles.md has the two decision tables.
package podgroups
