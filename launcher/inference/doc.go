// Package inference is what the front doors of a launcher and of a cluster have in
// common: reading the model of a request, changing its parameters, the shapes of errors,
// signs of life for clients that wait, and predicting how long they wait.
package inference
