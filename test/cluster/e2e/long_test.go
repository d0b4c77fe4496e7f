//go:build cluster && clusterlong

package e2e

// withLong says that the tests that take minutes are among those that run.
const withLong = true
