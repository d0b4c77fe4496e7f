// Package launcherapi holds the wire types of the launcher's HTTP control API.
//
// JSON names are snake_case. In requests, durations are strings such as "1m30s" or
// numbers of seconds; in answers they are milliseconds, in fields that end in _ms. Bytes
// are integers in fields that end in _bytes. Times are RFC 3339 in UTC. Errors are
// RFC 9457 problem documents ([Problem]).
//
// The paths, field names and status codes under /v2/vllm/instances are those of
// the llm-d community's launcher, so that its clients work unchanged.
// Hotseat adds paths and fields of its own.
package launcherapi
