// Package admission is a validating webhook that refuses to delete a ClusterModelCache that is in
// use. It updates the ValidatingWebhookConfiguration, by which the API server trusts the webhook
// server. It also maintains the EndpointSlice, by which the API server reaches the leader: only
// the leader knows the uses.
package admission
