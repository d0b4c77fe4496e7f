package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
	"hotseat.dev/hotseat/test/helpers/rawhttp"
)

const importPath = "/v2/compile-caches/0123456789abcdef0123456789abcdef"

func TestStalledBodyIsAnsweredAndItsConnectionEnds(t *testing.T) {
	r := newRig(t, func(o *api.Options) { o.BodyTimeout = time.Nanosecond })
	addr, ended := r.serve(t)
	for name, c := range map[string]struct {
		head   string
		status int
	}{
		"the body is read":                {"POST " + instancesPath + " HTTP/1.1\r\nContent-Type: application/json", http.StatusRequestTimeout},
		"the request is refused before":   {"POST " + instancesPath + " HTTP/1.1\r\nOrigin: http://other.example", http.StatusForbidden},
		"the body is read while it comes": {"PUT " + importPath + " HTTP/1.1\r\nContent-Type: application/x-tar", http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) { rawhttp.StallBody(t, addr, c.head, c.status) })
	}
	require.NoError(t, r.api.Shutdown(context.Background()))
	require.NoError(t, <-ended)
}

// importer imports an archive by a function of the test.
type importer struct {
	api.CompileCaches

	read func(io.Reader) error
}

func (i importer) Import(_ string, archive io.Reader) (launcherapi.CompileCache, error) {
	return launcherapi.CompileCache{}, i.read(archive)
}

func TestImportThatStalledEndsItsConnection(t *testing.T) {
	stalled, resumed := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(o *api.Options) {
		o.BodyTimeout = 50 * time.Millisecond
		o.CompileCaches = importer{o.CompileCaches, func(archive io.Reader) error {
			_, err := io.Copy(io.Discard, archive)
			close(stalled)
			<-resumed
			return launcher.Invalidf("body", "cannot read the archive: %w", err)
		}}
	})
	addr, ended := r.serve(t)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience.Wait())))
	_, err = io.WriteString(conn, "PUT "+importPath+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-tar\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	select {
	case <-stalled:
	case <-time.After(patience.Wait()):
		require.FailNow(t, "the import waits for the rest of its body")
	}
	_, err = io.WriteString(conn, strings.Repeat("x", 99))
	require.NoError(t, err)
	close(resumed)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	assert.True(t, resp.Close, "the server would cancel the next request of this connection")
	require.NoError(t, r.api.Shutdown(context.Background()))
	require.NoError(t, <-ended)
}

// deadlineWriter is a response's writer that keeps the read deadline of its connection.
type deadlineWriter struct {
	*httptest.ResponseRecorder

	deadline time.Time
	set      int // how often a deadline was set or removed
}

func (w *deadlineWriter) SetReadDeadline(t time.Time) error {
	w.deadline, w.set = t, w.set+1
	return nil
}

func TestImportReadsItsBodyBehindTheArchive(t *testing.T) {
	refused := launcher.Conflictf("the compile cache is of another kind")
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"imported": {nil, http.StatusOK},
		"refused":  {refused, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *api.Options) {
				o.CompileCaches = importer{o.CompileCaches, func(archive io.Reader) error {
					_, err := io.ReadFull(archive, make([]byte, len("archive")))
					assert.NoError(t, err)
					return c.err
				}}
			})
			body := strings.NewReader("archive and more")
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost"+importPath, body)
			req.Header.Set("Content-Type", launcherapi.CompileCacheType)
			w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
			r.api.ServeHTTP(w, req)
			assert.Equal(t, c.status, w.Code, w.Body.String())
			assert.Zero(t, body.Len(), "bytes are left")
			assert.Zero(t, w.deadline, "the last deadline stays, and the server reads the rest of the body under it")
			assert.NotZero(t, w.set)
		})
	}
}
