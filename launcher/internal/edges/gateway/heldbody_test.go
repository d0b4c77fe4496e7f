package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pieces is a request body that the test sends piece by piece.
type pieces struct {
	more chan string
	rest string
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.rest == "" {
		next, open := <-p.more
		if !open {
			return 0, io.EOF
		}
		p.rest = next
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// echoWhole answers with the request's body once it has read all of it.
func echoWhole(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = w.Write(body)
}

// unsized hides the length of a body, so that the client sends it in chunks.
type unsized struct{ io.Reader }

func TestLeavingClientsWithLargeBodiesFreeTheirPlaces(t *testing.T) {
	engine := newEngine(t, echo)
	p := newProxy(t, engine.URL)
	client := newClient(t)
	for range 2 { // the second round needs the places of the first
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan answer, p.options.MaxHeld)
		for n := range p.options.MaxHeld {
			var body io.Reader = strings.NewReader(strings.Repeat("x", 700<<10))
			if n%2 == 1 {
				body = unsized{body}
			}
			r := request(ctx, t, http.MethodPost, p.url("/v1/completions"), body)
			go func() { left <- do(client, r) }()
		}
		eventually(t, func() bool { return p.Held() == p.options.MaxHeld })
		leave()
		for range p.options.MaxHeld {
			require.ErrorIs(t, receive(t, left).err, context.Canceled)
		}
		eventually(t, func() bool { return p.Held() == 0 })
	}
}

func TestBodyReadWhileHeldReachesTheEngineWhole(t *testing.T) {
	engine := newEngine(t, echoWhole)
	p := newProxy(t, engine.URL)
	client := newClient(t)
	for _, size := range []int{1, 1000, maxReadAhead - 1, maxReadAhead, maxReadAhead + 1, 3*maxReadAhead + 17} {
		whole := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		for name, body := range map[string]io.Reader{"sized": strings.NewReader(whole), "chunked": unsized{strings.NewReader(whole)}} {
			p.Shut("the engine is starting")
			answers := make(chan answer, 1)
			r := request(t.Context(), t, http.MethodPost, p.url("/v1/completions"), body)
			go func() { answers <- do(client, r) }()
			eventually(t, func() bool { return p.Held() == 1 })
			p.Open()
			got := receive(t, answers)
			require.NoError(t, got.err)
			require.Equal(t, http.StatusOK, got.status)
			require.True(t, got.body == whole, "%d bytes, %s: %d came back", size, name, len(got.body))
		}
	}
}

func TestBodyMayContinueAfterTheGateOpens(t *testing.T) {
	engine := newEngine(t, echoWhole)
	p := newProxy(t, engine.URL)
	body := &pieces{more: make(chan string)}
	answers := make(chan answer, 1)
	r := request(t.Context(), t, http.MethodPost, p.url("/v1/completions"), body)
	client := newClient(t)
	go func() { answers <- do(client, r) }()
	body.more <- "before, "
	eventually(t, func() bool { return p.Held() == 1 })
	p.Open()
	body.more <- "after, "
	large := strings.Repeat("x", 2*maxReadAhead)
	body.more <- large
	close(body.more)
	got := receive(t, answers)
	require.NoError(t, got.err)
	require.True(t, got.body == "before, after, "+large)
	require.NoError(t, p.Close(patientContext(t)))
}

func TestRefusedHeldRequestStopsReadingItsBody(t *testing.T) {
	p := newProxy(t, "127.0.0.1:1")
	conn := requestWithoutBody(t, p, "POST /v1/completions")
	eventually(t, func() bool { return p.Held() == 1 })
	p.Fail("the engine ran out of device memory")
	var all bytes.Buffer
	_, err := io.Copy(&all, conn)
	require.NoError(t, err)
	require.Contains(t, all.String(), "out of device memory")
	require.NoError(t, p.Close(patientContext(t)))
}
