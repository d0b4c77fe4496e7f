// Package modelsources pulls models from real servers of each scheme, on loopback:
// S3 by versitygw, Google Cloud Storage by fake-gcs-server, OCI by the registry of the
// distribution project, which are built from the versions in test/modelservers; Azure
// by azurite, which npm installs there. `make test-models` runs it.
package modelsources
