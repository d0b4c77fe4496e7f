// Package launcherpool creates the launchers of each LauncherConfig: by a
// DaemonSet, or as single Pods on the nodes that need one. A launcher's Pod is the
// user's Pod template with the launcher program copied in. The package replaces
// launchers of an earlier template once no requester is bound to them, renews
// their certificates, and reports the launchers in the status.
package launcherpool
