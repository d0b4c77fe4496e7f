// Package launcher defines the concepts of the launcher: the states of an instance, the
// events that move an instance between states, the requests that packages pass to each
// other, and the errors that all packages share. The packages below adapt these concepts
// to processes, GPUs, files and HTTP.
package launcher
