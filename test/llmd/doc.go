// Package llmd holds what the llm-d community's controller makes of the chart's
// values-llm-d.yaml, and of the launcher, against that project's own code. It is a
// module of its own: that code is built with the versions of Kubernetes' libraries
// that it asks for. The code in source is that project's, unmodified.
package llmd
