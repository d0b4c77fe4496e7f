// Package podgroups has Volcano's scheduler give the Pods of a group nodes together. It keeps a
// PodGroup for each group of the ModelServings that Volcano schedules, which says how many Pods
// of each role are counted. spec/roles.md has the decision table.
package podgroups
