// Package decide decides how many replicas each entry of a Model is to have, and which Pods serve.
//
// [Decide] is pure: it knows neither Kubernetes nor a clock. [Window] keeps the demand of a Model,
// which Decide reads. The table of the decisions is in spec/model.md.
package decide
