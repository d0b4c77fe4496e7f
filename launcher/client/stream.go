package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

const ndjson = "application/x-ndjson"

// silences is how many heartbeats may be missing before the client closes a connection.
const silences = 3

var errSilent = errors.New("the launcher has fallen silent")

// stream opens a watch stream, and calls tell with each event until the connection ends or
// falls silent, or until tell returns an error. It calls begun once the launcher has answered.
func (c *Client) stream(ctx context.Context, path string, query url.Values, begun func(), tell func(launcherapi.RawEvent) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(silences*c.heartbeat, func() { cancel(errSilent) })
	defer silence.Stop()
	resp, err := c.ask(ctx, path, query)
	if err != nil {
		return broken(ctx, err)
	}
	defer resp.Body.Close()
	begun()
	events := linesOf(resp.Body)
	for events.Scan() {
		if err := c.pace(ctx); err != nil {
			return broken(ctx, err)
		}
		if err := tellLine(events.Bytes(), tell); err != nil {
			return err
		}
		silence.Reset(silences * c.heartbeat)
	}
	return broken(ctx, fmt.Errorf("cannot read the watch stream: %w", events.end()))
}

// broken returns why a stream has ended: errSilent if the launcher fell silent, else err.
func broken(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("cannot read the watch stream: %w", cause)
	}
	return err
}

// ask requests a watch stream.
func (c *Client) ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	query.Set("heartbeat", c.heartbeat.String())
	return c.send(ctx, call{method: http.MethodGet, path: path, query: query, lasts: true, header: map[string]string{"Accept": ndjson}})
}

// tellLine calls tell with the event of a line.
func tellLine(line []byte, tell func(launcherapi.RawEvent) error) error {
	var event launcherapi.RawEvent
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("cannot read the watch stream: %w", err)
	}
	return tell(event)
}
