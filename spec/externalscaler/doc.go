// Package externalscaler holds the wire types of KEDA's external scalers, with the server and the client that gRPC
// generates (https://keda.sh/docs/latest/concepts/external-scalers/). externalscaler.proto is their source.
package externalscaler
