package client_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestFrontDoorIsShownAndItsProfileChosen(t *testing.T) {
	h := newHost(t)
	h.down(t)
	h.door = &apitest.FrontDoor{}
	h.up(t)
	c, ctx := h.client(t), within(t)
	for _, profile := range []string{"night", ""} {
		chosen, err := c.ChooseProfile(ctx, profile)
		require.NoError(t, err)
		assert.Equal(t, profile, chosen.Profile)
		shown, err := c.FrontDoor(ctx)
		require.NoError(t, err)
		assert.Equal(t, chosen, shown)
		assert.Equal(t, []launcherapi.FrontDoorModel{{Names: []string{"m"}, State: "stopped"}}, shown.Models)
	}
}

func TestLauncherWithoutFrontDoorSaysSo(t *testing.T) {
	h := newHost(t)
	_, err := h.client(t).FrontDoor(within(t))
	require.True(t, client.IsNotFound(err), err)
	_, err = h.client(t).ChooseProfile(within(t), "night")
	require.True(t, client.IsNotFound(err), err)
}
