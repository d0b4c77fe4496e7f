package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

type compiledInput struct {
	Key string `path:"key" doc:"Key of the compile cache, as the list has it." example:"7d7595bb7c02b1a747c5e01ca5f89f0d"`
}

// errNoCompiled is the answer to every question about compile caches where there are none.
var errNoCompiled = &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "this launcher keeps no compiled code; its compile_cache is off, or it cannot write to the folder"}

func (s *Server) listCompiled(context.Context, *none) (*body[launcherapi.CompileCacheList], error) {
	if s.opts.CompileCaches == nil {
		return nil, errNoCompiled
	}
	return answer(s.opts.CompileCaches.List())
}

func (s *Server) deleteCompiled(_ context.Context, in *compiledInput) (*body[launcherapi.CompileCache], error) {
	if s.opts.CompileCaches == nil {
		return nil, errNoCompiled
	}
	return answer(s.opts.CompileCaches.Remove(in.Key))
}

func (s *Server) exportCompiled(_ context.Context, in *compiledInput) (*streamOutput, error) {
	if s.opts.CompileCaches == nil {
		return nil, errNoCompiled
	}
	write, err := s.opts.CompileCaches.Export(in.Key)
	if err != nil {
		return nil, err
	}
	return &streamOutput{func(ctx huma.Context) {
		r, w := humachi.Unwrap(ctx)
		w.Header().Set("Content-Type", launcherapi.CompileCacheType)
		w.WriteHeader(http.StatusOK)
		if r.Method == http.MethodHead {
			return
		}
		until, cancel := s.untilShutdown(r.Context())
		defer cancel()
		if err := write(writerUntil{until, w}); err != nil {
			s.log.WarnContext(until, "cannot export a compile cache to its end", "key", in.Key, "error", err)
			panic(http.ErrAbortHandler) // the reader sees that it has not got all
		}
	}}, nil
}

// writerUntil writes until its context ends.
type writerUntil struct {
	ctx context.Context //nolint:containedctx // the life of one answer
	w   io.Writer
}

func (w writerUntil) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.w.Write(p)
}

func docExport(op *huma.Operation, _ huma.Registry) {
	op.Description = "Refused (409) while an engine is starting, since it may be writing to the cache. If the connection breaks before the stream ends, the client has not received everything."
	op.Responses["200"] = &huma.Response{Description: "For the same call with PUT, at the launcher of another node", Content: tarContent()}
}

func tarContent() map[string]*huma.MediaType {
	return map[string]*huma.MediaType{launcherapi.CompileCacheType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
}

// importInput has its body read while it comes: it may be larger than main memory.
type importInput struct {
	Key    string `path:"key" doc:"Key of this launcher's own compile cache." example:"7d7595bb7c02b1a747c5e01ca5f89f0d"`
	stream readerUntil
}

// Resolve implements [huma.Resolver].
func (in *importInput) Resolve(ctx huma.Context) []error {
	r, w := humachi.Unwrap(ctx)
	in.stream = readerUntil{Reader: r.Body, control: http.NewResponseController(w)}
	return nil
}

func (s *Server) importCompiled(_ context.Context, in *importInput) (*body[launcherapi.CompileCache], error) {
	if s.opts.CompileCaches == nil {
		return nil, errNoCompiled
	}
	in.stream.limit = s.opts.BodyTimeout
	taken, err := s.opts.CompileCaches.Import(in.Key, &in.stream)
	// The archive may end before its body, and the import may be refused before either ends.
	_, _ = io.CopyN(io.Discard, &in.stream, drainBytes)
	return answer(taken, err)
}

func docImport(op *huma.Operation, _ huma.Registry) {
	op.Description = "Engines run this code: only let those call who may start engines. Refused (409) when it comes from another kind of engine or GPU than this launcher has, or while another import is under way. The launcher imports nothing unless it can read the archive to its end (422). It does not replace files that it has."
	op.RequestBody = &huma.RequestBody{Required: true, Description: "As it was exported", Content: tarContent()}
}

// streamsBody says whether a call reads its body while it comes.
func streamsBody(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, compiledPath+"/")
}

// readerUntil gives each read of a body the time for one that stalls. At the body's end it
// removes the read deadline: the server already waits for the client to hang up.
//
// No read follows one that failed. When a read fails, the server cancels all later requests of
// the connection. The deadline stays, so that the server cannot read the rest either, and closes
// the connection.
type readerUntil struct {
	io.Reader
	control *http.ResponseController
	limit   time.Duration
	err     error // of the last read
}

func (r *readerUntil) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	_ = r.control.SetReadDeadline(time.Now().Add(r.limit)) // some writers of tests have no deadlines
	var n int
	n, r.err = r.Reader.Read(p)
	if errors.Is(r.err, io.EOF) {
		_ = r.control.SetReadDeadline(time.Time{})
	}
	return n, r.err
}
