// Package launcher says what the launcher is about: the states of an instance,
// the happenings that move it between them, and the errors its parts share.
// The packages below it adapt that to processes, GPUs, files and HTTP.
package launcher
