// Package form reduces what a user wrote to one form: a server patch on a
// requester, or an InferenceServerConfig. Which of the two it was cannot be told
// from the form.
//
// Everything here but [Source] is a pure function of its arguments.
package form
