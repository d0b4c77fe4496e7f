// Package modelsources pulls models from real servers of each scheme, on loopback:
// S3 by versitygw, Google Cloud Storage by fake-gcs-server, OCI by the registry of the
// distribution project. test/modelservers has their versions. `make test-models` runs it.
package modelsources
