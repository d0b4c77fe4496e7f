// Package restarts decides what of a ServingGroup is restarted. All its functions are pure. The table
// is in spec/roles.md.
package restarts
