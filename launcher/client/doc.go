// Package client speaks to a launcher's HTTP control API.
//
// Every method is one operation. A call that the launcher refuses returns a
// [launcher.Error] with the launcher's code, which the predicates of this package,
// such as [IsNotFound], look for. Any other error means that the launcher could not
// be reached or broke off.
package client
