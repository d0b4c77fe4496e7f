// Package launcher has the concepts of the launcher: the states of an instance, the
// events that move the instance between them, and the errors that its packages
// share. The packages below adapt these to processes, GPUs, files and HTTP.
package launcher
