// Package gang gives the Pods of a group nodes together or not at all. It handles the Pods of
// ModelServings that carry podmeta.GateGang: it removes the gate once there is room for all Pods
// that are counted, and deletes the Pods of a group that did not get nodes in time. spec/roles.md
// has the decision table.
package gang
