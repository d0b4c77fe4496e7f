// Package groups keeps the Pods of ModelServings: those of each ServingGroup, a Service for each
// entry, and an EndpointSlice that leads to where the entry's server runs. The controller also
// records the revisions of the template. spec/roles.md has the decision tables.
package groups
