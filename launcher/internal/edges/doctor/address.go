package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// answerTime is how long whatever holds the address may take to say what it is.
const answerTime = 3 * time.Second

// checkAddress tells whether the control API could listen.
func checkAddress(ctx context.Context, e *examination) []Result {
	r := Result{Name: "address", Status: OK}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.Listen)
	switch {
	case err == nil:
		_ = listener.Close()
		r.Finding = e.Listen + " is free"
	case !errors.Is(err, syscall.EADDRINUSE):
		r.Status, r.Finding = Fail, err.Error()
		r.Remedy = "choose another address by --listen"
	default:
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		r.Status, r.Finding, r.Remedy = whoAnswers(ctx, e.Listen)
	}
	return one(r)
}

// whoAnswers asks for the service index, which a launcher answers with its name,
// or with 401 when it wants a token; then its health says enough.
func whoAnswers(ctx context.Context, address string) (status Status, finding, remedy string) {
	var index launcherapi.Service
	if code, err := get(ctx, "http://"+address+"/", &index); err == nil && code == http.StatusOK && index.Name == launcherapi.ServiceName {
		return OK, fmt.Sprintf("a launcher answers at %s: %s", address, index.Server), ""
	}
	var health launcherapi.Health
	if code, err := get(ctx, "http://"+address+"/health", &health); err == nil && code == http.StatusOK && health.Status == "OK" {
		return OK, fmt.Sprintf("a launcher that needs a token answers at %s", address), ""
	}
	return Fail, address + " is taken by another program", "end it (ss -ltnp shows it), or choose another address by --listen"
}

// get reads a small JSON answer.
func get(ctx context.Context, url string, into any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Close = true // no connection is kept
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into)
}
