package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// endless is a launcher that answers each call by what sends, which goes on until
// nobody listens; calls counts them.
func endless(t *testing.T, sends func(w io.Writer) error) (c *client.Client, calls *atomic.Int32) {
	t.Helper()
	calls = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		for sends(w) == nil {
		}
	}))
	t.Cleanup(server.Close)
	c, err := client.New(client.Options{Server: server.URL}) // streams are taken up again for ever
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, calls
}

// letters are a text that does not end.
func letters(w io.Writer) error {
	_, err := io.WriteString(w, strings.Repeat("a", 1<<20))
	return err
}

// tellOf sends an event.
func tellOf(w io.Writer, kind launcherapi.EventType, id string) error {
	_, err := fmt.Fprintf(w, `{"type": %q, "object": {"instance_id": %q}}`+"\n", kind, id)
	return err
}

// beginning is a text that goes on after its first words.
func beginning(words string) func(io.Writer) error {
	var begun atomic.Bool
	return func(w io.Writer) error {
		if begun.CompareAndSwap(false, true) {
			_, err := io.WriteString(w, words)
			return err
		}
		return letters(w)
	}
}

func TestAnAnswerWithoutEndIsGivenUp(t *testing.T) {
	for name, one := range map[string]struct {
		call func(*client.Client) error
		most string
	}{
		"a list": {func(c *client.Client) error { _, err := c.List(t.Context()); return err }, "4 MiB"},
		"one":    {func(c *client.Client) error { _, err := c.Get(t.Context(), "a"); return err }, "4 MiB"},
		"a text": {func(c *client.Client) error { _, err := c.Metrics(t.Context()); return err }, "32 MiB"},
		"the phases of a swap": {func(c *client.Client) error {
			_, err := c.Swap(t.Context(), launcherapi.SwapRequest{}, func(launcherapi.SwapProgress) {})
			return err
		}, "4 MiB"},
		"a part of a log": {func(c *client.Client) error { return c.CopyLog(t.Context(), "a", 0, io.Discard) }, "32 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			c, calls := endless(t, beginning(`{"detail": "`))
			err := one.call(c)
			require.ErrorContains(t, err, "is longer than "+one.most)
			assert.True(t, client.IsTooLong(err))
			assert.EqualValues(t, 1, calls.Load())
		})
	}
}

func TestAWatchGivesUpOnAnEventThatIsTooLongAndDoesNotComeBackToIt(t *testing.T) {
	c, calls := endless(t, beginning(`{"type": "UPDATED", "object": {"reason": "`))
	require.ErrorContains(t, watchToItsEnd(t, c), "an event is longer than 4 MiB")
	assert.EqualValues(t, 1, calls.Load())
}

func TestAWatchGivesUpOnInstancesWithoutEnd(t *testing.T) {
	var told atomic.Int64
	c, calls := endless(t, func(w io.Writer) error {
		id := fmt.Sprint("a-", told.Add(1))
		return tellOf(w, launcherapi.EventCreated, id)
	})
	require.ErrorContains(t, watchToItsEnd(t, c), "what it tells of its instances is longer than 32 MiB")
	assert.EqualValues(t, 1, calls.Load())
}

func TestAWatchTakesAnyNumberOfEventsOfTheSameInstancesAndOfThoseThatWereDeleted(t *testing.T) {
	const enough = 10_000 // events, which would be too many instances
	var told int
	c, _ := endless(t, func(w io.Writer) error {
		if told++; told == enough {
			return io.EOF
		}
		if told%3 == 0 {
			return tellOf(w, launcherapi.EventUpdated, "same")
		}
		kind := []launcherapi.EventType{launcherapi.EventCreated, launcherapi.EventDeleted}[told%3-1]
		return tellOf(w, kind, fmt.Sprint("a-", told/3))
	})
	since, seen := uint64(0), 0
	for _, err := range c.Watch(t.Context(), &since) {
		require.NoError(t, err)
		if seen++; seen == enough-1 {
			break
		}
	}
	assert.Equal(t, enough-1, seen)
}

// watchToItsEnd is the error that ends a watch by itself.
func watchToItsEnd(t *testing.T, c *client.Client) (last error) {
	t.Helper()
	since := uint64(0)
	for _, err := range c.Watch(t.Context(), &since) {
		last = err
	}
	assert.True(t, client.IsTooLong(last))
	return last
}
