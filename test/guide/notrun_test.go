package guide

// notRun lists the blocks that no test runs: their first lines, and why.
var notRun = map[string][]string{}
