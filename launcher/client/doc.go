// Package client speaks to a launcher's HTTP control API.
//
// Every method is one operation. What the launcher refuses comes back as a
// [launcher.Error] with the code that it had there; the predicates of this
// package, such as [IsNotFound], look for it. Any other error means that the
// launcher could not be reached or broke off.
package client
