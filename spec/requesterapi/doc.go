// Package requesterapi holds the wire types of the requester's SPI, by which a
// controller binds a server-requesting Pod to an inference server and relays to
// it. It is HTTP/1.1 with JSON, by default on port 8081 of the Pod; by TLS in a
// Pod that mounts the controller's authorities (package mtls), where everything
// but GET /ready is 403 forbidden for who shows no certificate of theirs; else
// plain, and for everybody:
//
//	GET    /v1/dual-pods/accelerators               a list of UUIDs (strings)
//	GET    /v1/dual-pods/accelerator-memory-usage   [MemoryUsage]
//	POST   /v1/become-ready[?binding=ID]            200, or 409 unbound, other_binding, draining, terminating
//	POST   /v1/become-unready[?binding=ID]          200, or 409 other_binding
//	GET    /ready[?wait=1s]                         200, or 503
//	POST   /v1/set-log?startPos=N                   [LogPosition], or 400, 409 other_binding, 413
//	       [&binding=ID][&log=NAME]
//	GET    /v1/proxy/config                         [Proxy] with 200; with 404 while nobody is bound
//	PUT    /v1/proxy/config                         [ProxyConfig] → [Proxy], or 409 other_binding, draining, terminating, port_taken
//	DELETE /v1/proxy/config?binding=ID              [Unbound], or 409 other_binding
//	       [&drain_timeout=10s][&idle_timeout=2s]
//
// Errors are RFC 9457 problem documents ([Problem]); every answer of the SPI
// names the requester's process in the header [InstanceHeader].
//
// Paths, fields and status codes are those of the llm-d community's requester
// (github.com/llm-d-incubation/llm-d-fast-model-actuation, pkg/spi), so that its
// clients find what they expect; the query parameters but startPos, DELETE, and
// the fields of ProxyConfig but address and port are hotseat's. It differs in
// one thing: become-ready is refused while nobody is bound.
//
// # What a binding owns
//
// A requester is bound by PUT and unbound by DELETE. While it is unbound, or is
// being unbound, it does not listen on its serving port: the kernel refuses
// clients at once. A connection belongs to the binding that was there when it
// came in, is carried to that binding's target alone, and is gone when DELETE
// answers. PUT may come before the target listens: clients that come too early
// are reset at once.
//
// DELETE makes the requester unready, stops listening, and lets connections end
// until drain_timeout has passed; the rest it cuts by reset, so that no client
// takes half an answer for a whole one. Of a connection that stays open the
// requester, which carries bytes and reads none, can tell only this: if the last
// bytes went to the instance, somebody waits for an answer, and it is kept. If
// they went to the client (or there never were any) and nothing has moved for
// idle_timeout, it is taken for one that is kept alive between two requests, and
// is closed. A streamed answer that pauses longer is cut short by that: whoever
// knows the pauses of the engine gives a longer idle_timeout. A second DELETE of
// the binding joins the first, and the earlier end of the two counts: one with
// drain_timeout=0s cuts at once, for a controller that knows the engine to have
// no request in flight.
//
// # Probes that wait
//
// The kubelet asks a readiness probe once a second at most, and a second is long
// beside the time in which a model wakes. A probe of GET /ready?wait=5s is held
// until the requester has become ready, or is ready no more, so that its Pod
// turns at once; the probe's timeoutSeconds must be longer than wait. It is held
// for wait at most, and by a requester that is ready for a second at most. An
// answer that is another than the one before is given at once, and so is every
// answer once the requester was told to end.
//
// # The log
//
// What set-log brings is printed, each byte once: a chunk says where in the log
// it begins, and what was printed before is passed over. A log is known by its
// name, or else by the binding. Another log than the last one begins where its
// first chunk does, so that a caller can leave out what was said before. How far
// the log is stands in [Proxy], for a caller that has forgotten it.
//
// # What a restart forgets
//
// A container that starts again is unbound and not ready, and its log begins at
// 0. Its instance, a random name, is another one then, and tells a controller to
// PUT again.
//
// On SIGTERM a requester is unready at once. One that is bound goes on carrying
// connections until DELETE comes or its termination grace is over; one that is
// not ends. A controller that wants the GPUs to stay allocated while it works on
// them therefore binds before it does so.
package requesterapi
