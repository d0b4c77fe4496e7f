// Package launcherpool makes the launchers of a LauncherConfig: a DaemonSet, or
// Pods on the nodes that need one, each from the user's own Pod template with
// the launcher copied in. It replaces launchers of an earlier template once
// nobody is bound to them, keeps the token of their control API, and tells in
// the status what there is.
package launcherpool
