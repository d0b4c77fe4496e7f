// Package version says which build of hotseat this is.
package version

// Version is set by the linker.
var Version = "unknown"
