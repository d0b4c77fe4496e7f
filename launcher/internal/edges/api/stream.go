package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/danielgtaylor/huma/v2/negotiation"
)

const (
	ndjsonContentType = "application/x-ndjson"
	sseContentType    = "text/event-stream"
)

// streamOutput is an answer that is written piece by piece.
type streamOutput struct {
	Body func(huma.Context)
}

// untilShutdown gives a call's context that also ends when the server begins to
// shut down, with errClosing as the cause.
func (s *Server) untilShutdown(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.streams, func() { cancel(context.Cause(s.streams)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// retryStreamAfter is the value of Retry-After where too many streams are open, in seconds.
const retryStreamAfter = 5

// stream is an answer that lasts until the client leaves. If too many are open, the client
// gets a problem instead: each stream takes a connection, and may take a file.
func (s *Server) stream(serve func(huma.Context)) *streamOutput {
	return &streamOutput{func(ctx huma.Context) {
		defer s.openStreams.Add(-1)
		if n := s.openStreams.Add(1); s.opts.MaxStreams > 0 && n > int64(s.opts.MaxStreams) {
			_, w := humachi.Unwrap(ctx)
			newProblem(http.StatusTooManyRequests, fmt.Sprintf("%d watches, followed logs and followed swaps are open, and no more are allowed; end some, or try again later", s.opts.MaxStreams), nil).
				with("Retry-After", strconv.Itoa(retryStreamAfter)).write(w)
			return
		}
		serve(ctx)
	}}
}

// eventStream writes events, as NDJSON or as server-sent events, and flushes
// each at once.
type eventStream struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	sse   bool
}

// negotiate picks a type for the answer by the Accept header; the first type is for
// clients that do not care.
func negotiate(accept string, types ...string) string {
	if picked := negotiation.SelectQValueFast(accept, types); picked != "" {
		return picked
	}
	return types[0]
}

// beginEvents writes the head of a stream. For a HEAD request nothing follows, and
// ok is false.
func beginEvents(ctx huma.Context, contentType string) (out *eventStream, ok bool) {
	r, w := humachi.Unwrap(ctx)
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out = &eventStream{w: w, flush: http.NewResponseController(w), sse: contentType == sseContentType}
	return out, r.Method != http.MethodHead && out.flush.Flush() == nil
}

// events is an answer of events, which send writes. The context of send also ends when the
// server begins to shut down.
func (s *Server) events(accept string, send func(context.Context, *eventStream)) *streamOutput {
	contentType := negotiate(accept, ndjsonContentType, sseContentType)
	return s.stream(func(ctx huma.Context) {
		out, ok := beginEvents(ctx, contentType)
		if !ok {
			return
		}
		until, cancel := s.untilShutdown(ctx.Context())
		defer cancel()
		send(until, out)
	})
}

// send writes one event. kind and id are for server-sent events only; the document
// has them too. An error means that the client has left.
func (e *eventStream) send(kind, id string, document any) error {
	line, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("cannot write an event: %w", err)
	}
	switch {
	case !e.sse:
		_, err = fmt.Fprintf(e.w, "%s\n", line)
	case id == "":
		_, err = fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", kind, line)
	default:
		_, err = fmt.Fprintf(e.w, "id: %s\nevent: %s\ndata: %s\n\n", id, kind, line)
	}
	if err != nil {
		return fmt.Errorf("cannot write an event: %w", err)
	}
	return e.flush.Flush()
}

func schemaOf[T any](schemas huma.Registry) *huma.Schema {
	return schemas.Schema(reflect.TypeFor[T](), true, "")
}

// eventContent describes a stream of documents in both its forms.
func eventContent(schema *huma.Schema, each string) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{
		ndjsonContentType: {Schema: schema},
		sseContentType: {Schema: &huma.Schema{
			Type:        huma.TypeString,
			Description: each + ": its type as event, and the same document as in " + ndjsonContentType + " as data.",
		}},
	}
}
