// Package pool keeps the InferencePools of Models that ask for one: objects by which gateways of others find the Pods
// that serve a Model (https://gateway-api-inference-extension.sigs.k8s.io).
package pool
