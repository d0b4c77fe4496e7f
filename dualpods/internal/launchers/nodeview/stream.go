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

// longestHead bounds the head of an answer, in bytes.
const longestHead = 64 << 10

// streams is a [http.RoundTripper] for answers that last, such as those of watches. Each
// call has a connection of its own, which ends with the answer, and who made the call reads
// from the connection itself: [http.Transport] keeps two goroutines more for each connection,
// and a buffer to write by.
type streams struct{ dial dialer }

// RoundTrip makes a call without a body.
func (s streams) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	conn, err := s.dial(ctx, "tcp", req.URL.Host)
	if err != nil {
		return nil, err
	}
	// The end of ctx ends every read and write at once; who reads then closes.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	out := &stream{over: ctx.Err, conn: conn, stop: stop}
	resp, err := out.head(req)
	if err != nil {
		return nil, out.failed(err)
	}
	out.body, resp.Body = resp.Body, out
	return resp, nil
}

// stream is the body of an answer, with the connection that it comes by.
type stream struct {
	over func() error // why the context of the request has ended; nil: it has not
	conn net.Conn
	stop func() bool
	body io.Reader
}

// head sends the request, and reads until the answer's body begins.
func (s *stream) head(req *http.Request) (*http.Response, error) {
	if err := req.Write(s.conn); err != nil {
		return nil, fmt.Errorf("cannot send the request: %w", err)
	}
	in := &io.LimitedReader{R: s.conn, N: longestHead}
	resp, err := http.ReadResponse(bufio.NewReaderSize(in, buffer), req)
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	in.N = math.MaxInt64
	return resp, nil
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if err != nil {
		err = cmp.Or(s.over(), err)
	}
	return n, err
}

// Close ends the answer, wherever it is, with its connection.
func (s *stream) Close() error {
	s.stop()
	return s.conn.Close()
}

// failed closes the connection of a call that failed.
func (s *stream) failed(err error) error {
	err = cmp.Or(s.over(), err)
	_ = s.Close() // of an answer that nobody reads
	return err
}
