package main

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestAStartThatIsFollowedFromAnEventLongGoneIsNotAskedForOverAndOver(t *testing.T) {
	logs, err := outlog.Open(outlog.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	defer logs.Close()
	events := eventlog.New(4, 0)
	instances := apitest.NewInstances(events, logs)
	server := httptest.NewServer(api.New(api.Options{Instances: instances, Events: events, Logs: logs, Logger: slog.New(slog.DiscardHandler)}))
	defer server.Close()
	began := instances.Put("a", launcher.Starting, launcherapi.EventCreated)
	for range 8 {
		instances.Put("b", launcher.Awake, launcherapi.EventUpdated)
	}
	cl, err := client.New(client.Options{Server: server.URL})
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = awaitAwake(ctx, cl, began, newProgress(t.Output()))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, len(instances.Record()), 5)
}
