// Package guide reads README.md and the pages of spec/guide, and runs the commands that
// they show, as they stand. Its tests run what takes the launcher alone; package
// test/cluster/guide runs what takes a Kubernetes.
//
// The first word after the fence of a block says what the block is:
//
//	```sh                     commands that a reader pastes into one shell, block by block
//	```sh terminal=NAME       commands for a terminal of their own, of which the last stays
//	                          in the foreground; Ctrl-C ends it before the next block
//	                          is pasted into the same terminal
//	```sh cluster             commands for the shell of `make cluster-shell`
//	```sh not-run: REASON     commands that no test can run; the test lists them
//	```text, yaml, mermaid    something to look at
//
// Every command has to succeed. A line that ends in "# refused" has to fail.
package guide
