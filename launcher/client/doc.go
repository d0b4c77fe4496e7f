// Package client is a client of the launcher's HTTP control API.
//
// Each method is one operation. If the launcher refuses a call, the method returns a
// [launcher.Error] with a code. Predicates such as [IsNotFound] check the code. Any other error
// means that the client could not reach the launcher, or that the connection broke.
package client
