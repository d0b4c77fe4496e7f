// Package decide decides how many replicas each entry of a Model is to have, and which Pods serve.
//
// [Window] keeps the demand of a Model over time.
package decide
