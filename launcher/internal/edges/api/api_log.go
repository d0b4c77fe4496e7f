package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const bytesContentType = "application/octet-stream"

type logInput struct {
	ID     string `path:"instance_id" doc:"Id of the instance." example:"qwen3-8b"`
	Range  string `header:"Range" doc:"bytes=a-b or bytes=a-; without it the log from its start. A read without an end gives at most 1 MiB. A read begins at the first byte of the range that was not dropped." example:"bytes=0-1023"`
	Follow bool   `query:"follow" doc:"Follow the log from the start of the range, until no process writes to it any more."`
}

func (s *Server) instanceLog(_ context.Context, in *logInput) (*streamOutput, error) {
	asked, err := parseRange(in.Range)
	if err == nil && in.Follow && asked.Bounded {
		err = &malformedRangeError{in.Range, "follow reads to the end of the log; write bytes=FIRST-"}
	}
	if err != nil {
		return nil, logProblem(err)
	}
	name, over, err := s.opts.Instances.LogName(in.ID)
	if err != nil {
		return nil, err
	}
	if in.Follow {
		return s.stream(func(ctx huma.Context) { s.followLog(ctx, name, asked.First, over) }), nil
	}
	read, err := s.opts.Logs.Read(name, asked)
	if err != nil {
		return nil, logProblem(err)
	}
	return &streamOutput{func(ctx huma.Context) {
		defer read.Close()
		ctx.SetHeader("Content-Type", bytesContentType)
		ctx.SetHeader("Accept-Ranges", "bytes")
		ctx.SetHeader("Content-Range", rangeOf(read))
		ctx.SetHeader("Content-Length", strconv.FormatInt(read.Length, 10))
		if in.Range == "" {
			ctx.SetStatus(http.StatusOK)
		} else {
			ctx.SetStatus(http.StatusPartialContent)
		}
		_, _ = io.Copy(ctx.BodyWriter(), read) // the client may be gone
	}}, nil
}

// rangeOf is the Content-Range of a part.
func rangeOf(read *launcher.LogPart) string {
	return fmt.Sprintf("bytes %d-%d/%d", read.First, read.First+read.Length-1, read.Total)
}

// followLog writes the log as it grows. When it cannot go on before the log is
// over, or when bytes are dropped before they are written, it breaks the connection, so
// that the client does not take the part that it has for the whole.
func (s *Server) followLog(ctx huma.Context, name string, from int64, over <-chan struct{}) {
	r, w := humachi.Unwrap(ctx)
	from, kept := s.keptFrom(name, from)
	if kept != "" {
		w.Header().Set("Content-Range", kept)
	}
	w.Header().Set("Content-Type", bytesContentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	if r.Method == http.MethodHead || flush.Flush() != nil {
		return
	}
	until, cancel := s.untilShutdown(r.Context())
	defer cancel()
	err := s.opts.Logs.Follow(until, name, from, over, func(p []byte) error {
		if _, err := w.Write(p); err != nil {
			return err
		}
		return flush.Flush()
	})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// keptFrom returns where a log can be followed from an offset on: bytes there may have been
// dropped. The text says it in a Content-Range. It names only the length if the log has lost
// all its bytes, and is empty if there is no byte at the offset yet.
func (s *Server) keptFrom(name string, from int64) (first int64, contentRange string) {
	read, err := s.opts.Logs.Read(name, launcher.LogRange{First: from})
	if none, ok := errors.AsType[*launcher.LogRangeError](err); ok {
		if none.Begin <= from {
			return from, ""
		}
		return none.Begin, fmt.Sprintf("bytes */%d", none.Begin) // there is no byte yet after those that were dropped
	}
	if err != nil {
		return from, "" // Follow fails, too
	}
	_ = read.Close() // nothing was read
	return read.First, rangeOf(read)
}

// logProblem gives the errors of ranges their statuses. A log without a file counts
// as empty.
func logProblem(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = &launcher.LogRangeError{}
	}
	if malformed, ok := errors.AsType[*malformedRangeError](err); ok {
		return newProblem(http.StatusBadRequest, malformed.Error(), nil)
	}
	if beyond, ok := errors.AsType[*launcher.LogRangeError](err); ok {
		return problemOf(&launcher.Error{Code: launcherapi.CodeRange, Detail: beyond.Error()}).with("Content-Range", fmt.Sprintf("bytes */%d", beyond.Total))
	}
	return err
}

func docLog(op *huma.Operation, _ huma.Registry) {
	bytes := map[string]*huma.MediaType{bytesContentType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
	ranged := map[string]*huma.Param{
		"Content-Range": {Schema: &huma.Schema{Type: huma.TypeString}, Description: "As in \"bytes 0-99/1234\"."},
		"Accept-Ranges": {Schema: &huma.Schema{Type: huma.TypeString}},
	}
	op.Description = "The answer is 416, with the length in Content-Range, if the log is empty, if the range begins at or beyond its end, or if all bytes of the range were dropped (log_max_bytes). " +
		"Offsets count what was dropped. Content-Range says where the answer begins, also of a log that is followed (as in \"bytes */14\" if all its 14 bytes were dropped); if bytes are dropped before they are sent, the connection breaks, and a client goes on at its offset."
	op.Responses["200"] = &huma.Response{Description: "From the start, or followed", Content: bytes, Headers: ranged}
	op.Responses["206"] = &huma.Response{Description: "The range that was asked for", Content: bytes, Headers: ranged}
}
