package nodeview

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"
)

// maxHeadBytes is the largest head of a response, in bytes.
const maxHeadBytes = 64 << 10

// streamTransport is an [http.RoundTripper] for long responses, such as those of watches. Each
// call has its own connection, which ends with the response. The caller reads from the
// connection itself. [http.Transport] would keep two goroutines and a write buffer for
// each connection.
type streamTransport struct{ dial dialer }

// RoundTrip sends a request without a body.
func (s streamTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	conn, err := s.dial(ctx, "tcp", req.URL.Host)
	if err != nil {
		return nil, err
	}
	// The end of ctx ends each read and write; the reader then closes the connection.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	out := &stream{contextErr: ctx.Err, conn: conn, stop: stop}
	resp, err := out.head(req)
	if err != nil {
		return nil, out.closeAfter(err)
	}
	out.body, resp.Body = resp.Body, out
	return resp, nil
}

// stream is the body of a response together with its connection.
type stream struct {
	contextErr func() error // the error of the request's context; nil while it has not ended
	conn       net.Conn
	stop       func() bool
	body       io.Reader
}

// head sends the request and reads the response up to its body.
func (s *stream) head(req *http.Request) (*http.Response, error) {
	if err := req.Write(s.conn); err != nil {
		return nil, fmt.Errorf("cannot send the request: %w", err)
	}
	in := &io.LimitedReader{R: s.conn, N: maxHeadBytes}
	resp, err := http.ReadResponse(bufio.NewReaderSize(in, bufferSize), req)
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	in.N = math.MaxInt64
	return resp, nil
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if err != nil {
		err = cmp.Or(s.contextErr(), err)
	}
	return n, err
}

// Close closes the connection, also in the middle of a response.
func (s *stream) Close() error {
	s.stop()
	return s.conn.Close()
}

// closeAfter closes the connection after an error and returns the error.
func (s *stream) closeAfter(err error) error {
	err = cmp.Or(s.contextErr(), err)
	_ = s.Close() // the caller gets the first error
	return err
}
