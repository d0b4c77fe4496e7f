// Package admission answers the API server when somebody wants to delete a
// ClusterModelCache that is in use: it is refused, in words. It keeps the
// ValidatingWebhookConfiguration by which the API server knows the answerer, and the
// EndpointSlice by which it reaches the one replica that knows the answer.
package admission
