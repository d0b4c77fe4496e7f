// Package subgroups divides the Pods of a replica of a role into subgroups. It says which labels,
// annotations, affinities and TPU environment each Pod gets, and what is wrong with a
// subGroupPolicy. All of it is computed from values; nothing here reads or writes an object.
// spec/roles.md has the rules in its section "Subgroups".
package subgroups
