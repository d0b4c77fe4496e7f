// Package requesterapi holds the wire types of the requester's SPI. By it, a controller
// binds a server-requesting Pod to an inference server, and relays to it.
//
// The SPI is HTTP/1.1 with JSON, by default on port 8081 of the Pod. If the Pod mounts
// the controller's authorities (package mtls), the SPI uses TLS: a client without a
// certificate of these authorities may only call GET /ready, and every other call
// answers 403 forbidden. Otherwise the SPI is plain HTTP, for every client:
//
//	GET    /v1/dual-pods/accelerators               a list of UUIDs (strings)
//	GET    /v1/dual-pods/accelerator-memory-usage   [MemoryUsage]
//	POST   /v1/become-ready[?binding=ID]            200, or 409 unbound, other_binding, draining, terminating
//	POST   /v1/become-unready[?binding=ID]          200, or 409 other_binding
//	GET    /ready[?wait=1s]                         200, or 503
//	POST   /v1/set-log?startPos=N                   [LogPosition], or 400, 409 other_binding, 413
//	       [&binding=ID][&log=NAME]
//	GET    /v1/proxy/config                         [Proxy] with 200; with 404 while the requester is unbound
//	PUT    /v1/proxy/config                         [ProxyConfig] → [Proxy], or 409 other_binding, draining, terminating, port_taken
//	DELETE /v1/proxy/config?binding=ID              [Unbound], or 409 other_binding
//	       [&drain_timeout=10s][&idle_timeout=2s]
//	PUT    /v1/proxy/hold                           [Hold] → [Proxy], or 409 as for PUT of a ProxyConfig
//
// Errors are RFC 9457 problem documents ([Problem]); every answer of the SPI
// names the requester's process in the header [InstanceHeader].
//
// Paths, fields and status codes are those of the llm-d community's requester
// (github.com/llm-d-incubation/llm-d-fast-model-actuation, pkg/spi), so that its
// clients find what they expect. Hotseat adds DELETE, hold, the query parameters except
// startPos, and the fields of ProxyConfig except address and port. It differs in one
// thing: the requester refuses become-ready while it is unbound.
//
// # Holding connections
//
// PUT of a [Hold] names a binding that is to come soon. From then on, an unbound requester
// listens on its serving port. It accepts [MaxHeld] connections at most and holds each for
// [MaxHold] at most; it resets those that are one too many, and those that have waited for
// too long. PUT of a ProxyConfig with the same binding and the same serving port forwards
// what is held. So no client is refused that comes a moment too early.
//
// What is held for a binding reaches no other one. PUT of another Hold or of a ProxyConfig
// with another binding or port resets it, as do DELETE of the binding and SIGTERM. After
// DELETE and SIGTERM, the serving port refuses connections again.
//
// A program of an earlier release does not know this call. [Proxy] of one that does has
// can_hold.
//
// # What a binding owns
//
// A requester is bound by PUT and unbound by DELETE. While it is unbound and holds nothing,
// or is being unbound, it does not listen on its serving port: the kernel refuses
// clients at once. A connection belongs to the binding that was there when it came in.
// The requester forwards it to that binding's target alone, and has closed it when
// DELETE answers. PUT may come before the target listens: then the requester resets
// connections that come too early at once.
//
// DELETE makes the requester unready, stops listening, and lets connections end until
// drain_timeout has passed. It cuts the rest by reset, so that no client takes half an
// answer for a whole one.
//
// The requester forwards bytes and does not read them. So it judges an open connection
// only by the direction of the last bytes:
//
//   - They went to the instance: a client waits for an answer, and the requester keeps
//     the connection.
//   - They went to the client, or there were none, and nothing has moved for
//     idle_timeout: the requester takes the connection for one that is kept alive
//     between two requests, and closes it.
//
// The second rule cuts a streamed answer that pauses for longer than idle_timeout. A
// controller that knows the pauses of the engine gives a longer idle_timeout. A second
// DELETE of the binding joins the first, and the earlier end of the two counts. A DELETE
// with drain_timeout=0s cuts at once; a controller uses it if it knows that the engine
// has no request in flight.
//
// A worker of a server over several launchers takes no requests. PUT with no_traffic binds its
// requester: it can become ready, and does not listen on its serving port.
//
// # Probes that wait
//
// The kubelet sends a readiness probe once a second at most, and a model may wake in less
// than a second. The requester holds a probe of GET /ready?wait=5s until its readiness
// changes, so that the Pod's readiness changes at once. It holds a probe for wait at
// most, and while it is ready for a second at most. The probe's timeoutSeconds must be
// longer than wait. If the answer differs from the last one, or if the requester was
// told to end, it answers at once.
//
// # The log
//
// The requester prints each byte that set-log brings once: a chunk says where in the log
// it begins, and the requester skips bytes that it has printed before. A log is
// identified by its name, or by the binding if it has none. A new log begins where its
// first chunk does, so that a caller can leave out earlier bytes. [Proxy] says how far
// the log is, for a caller that has forgotten it.
//
// # What a restart forgets
//
// A restarted container is unbound and not ready, and its log begins at 0. Its instance, a
// random name, has changed; by that a controller notices that it has to PUT again.
//
// # The end
//
// On SIGTERM a requester is unready at once. An unbound requester ends. A bound requester
// continues to accept and forward connections until DELETE comes, or its termination
// grace is over. So a controller that needs the GPUs to stay allocated binds the requester
// before it works on them. If DELETE has come by the end of the grace, the requester ends
// when the drain does.
//
// For some seconds after SIGTERM, proxies may still send clients to the requester. [Proxy]
// says how many of these seconds are left (shutdown_delay_ms). A controller sends DELETE
// after them.
package requesterapi
