// Package api serves the launcher's HTTP control API.
//
// Every operation is one row of the table in routes.go; the router, the service
// index at GET / and the OpenAPI document come from that table and from the
// wire types of package launcherapi. A handler decodes, makes one call and
// encodes; the handlers of a resource stand in api_<noun>.go.
//
// # Errors
//
// Every error is an RFC 9457 problem document. A domain error ([launcher.Error])
// has the status of its code ([launcherapi.StatusOf]); any other is a 500. What
// is wrong with a request is told by field, and never repeats a value, which
// may be a secret.
//
//	400  no JSON, no UTF-8, no body where one is needed, a malformed Range
//	405  with Allow, as the answer to OPTIONS has
//	413  a body of MaxBodyBytes or more
//	415  a body that does not call itself JSON
//	422  JSON that is not what the operation takes: unknown fields, wrong types
//
// # Access
//
// Without Options.Access everybody who reaches the port may do everything,
// which is why the launcher listens on loopback by default. With it every path
// needs "Authorization: Bearer <token>", but for GET /health and GET /readyz,
// which tell nothing and are for probes. GET /metrics is protected too unless
// Options.PublicMetrics is set: it names models and instances. Requests that a
// browser sends from another site's page are refused in every case, and without
// Access those at a loopback address that call it by any name but localhost,
// the machine's own, or an address.
package api
