// Package e2e holds what is shown of the launcher from outside: each test
// drives the built programs over HTTP with real child processes. The engine is
// the stand-in of test/enginesim, or for starts by fork that of test/helpers/pyengine;
// test/vllm does the same with real vLLM.
//
// Every launcher of a test has a state folder, ports and a process tree of its
// own, and all of that is gone when the test is over: the harness checks it.
package e2e
