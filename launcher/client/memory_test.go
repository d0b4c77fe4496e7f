package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// most is what a call may allocate in all, whatever it is answered.
const most = 100 << 20

// allocated returns what do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// says is a launcher that answers each call by a text.
func says(t *testing.T, text string) *client.Client {
	t.Helper()
	body := []byte(text)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	t.Cleanup(server.Close)
	c, err := client.New(client.Options{Server: server.URL})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// repeated is a text of so many bytes, about.
func repeated(begin, part, end string, bytes int) string {
	return begin + strings.Repeat(part+",", bytes/(len(part)+1)) + part + end
}

func TestAnswersThatTakeManyTimesTheirLengthAreRefused(t *testing.T) {
	const bytes = 31 << 20
	list := func(c *client.Client) error { _, err := c.List(t.Context()); return err }
	gpus := func(c *client.Client) error { _, err := c.GPUs(t.Context()); return err }
	models := func(c *client.Client) error { _, err := c.Models(t.Context()); return err }
	one := func(c *client.Client) error { _, err := c.Get(t.Context(), "a"); return err }
	watch := func(c *client.Client) (last error) {
		since := uint64(0)
		for _, err := range c.Watch(t.Context(), &since) {
			if last = err; err == nil {
				return nil // it has taken the event
			}
		}
		return last
	}
	follow := func(c *client.Client) (last error) {
		for _, err := range client.FollowModels(t.Context(), c, func(m launcherapi.Model) launcherapi.Model { return m }) {
			if last = err; err == nil {
				return nil // as above
			}
		}
		return last
	}
	event := `{"type": "UPDATED", "object": `
	for name, c := range map[string]struct {
		text string
		call func(*client.Client) error
	}{
		"empty instances":          {repeated(`{"instances": [`, `{}`, `]}`, bytes), list},
		"instances with ids":       {repeated(`{"instances": [`, `{"instance_id":"a"}`, `]}`, bytes), list},
		"phases of one instance":   {repeated(`{"instances": [{"timings": [`, `{}`, `]}]}`, bytes), list},
		"phases of many instances": {repeated(`{"instances": [`, repeated(`{"timings": [`, `{}`, `]}`, 100<<10), `]}`, bytes), list},
		"another field":            {repeated(`{"other": [`, `{}`, `], "instances": []}`, bytes), list},
		"many other fields":        {`{` + strings.Repeat(`"a":{},`, bytes/7) + `"instances": []}`, list},
		"blanks":                   {`{"instances": [` + strings.Repeat(" ", bytes) + `]}`, list},
		"holders of one GPU":       {repeated(`{"gpus": [{"awake": [`, `{}`, `]}]}`, bytes), gpus},
		"empty GPUs":               {repeated(`{"gpus": [`, `{}`, `]}`, bytes), gpus},
		"empty models":             {repeated(`{"models": [`, `{}`, `]}`, bytes), models},
		"an instance":              {repeated(`{"timings": [`, `{}`, `]}`, bytes), one},
		"a short instance":         {repeated(`{"timings": [`, `{}`, `]}`, 3<<20), one},
		"an event":                 {repeated(event+`{"timings": [`, `{}`, "]}}\n", 3<<20), watch},
		"an event of a model":      {repeated(event+`{"refs": [`, `""`, "]}}\n", 3<<20), follow},
	} {
		t.Run(name, func(t *testing.T) {
			launcher := says(t, c.text)
			var err error
			assert.Less(t, allocated(func() { err = c.call(launcher) }), uint64(most))
			require.Error(t, err)
			assert.True(t, client.IsTooLong(err), "%v", err)
		})
	}
}

func TestAWatchIsReadAsFastAsItsReaderWants(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for tellOf(w, launcherapi.EventHeartbeat, "a") == nil {
		}
	}))
	t.Cleanup(server.Close)
	enough, asked := errors.New("enough"), 0
	c, err := client.New(client.Options{Server: server.URL, Pace: func(context.Context) error {
		if asked++; asked == 1000 {
			return enough
		}
		return nil
	}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for _, err = range client.FollowModels(t.Context(), c, func(m launcherapi.Model) launcherapi.Model { return m }) {
	}
	require.ErrorIs(t, err, enough)
	assert.Equal(t, 1000, asked, "each event is asked for, also one that says nothing")
}
