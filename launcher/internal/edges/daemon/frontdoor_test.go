package daemon

import (
	"bytes"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDefaultFrontDoorGivesWay(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	var said bytes.Buffer
	d := &Daemon{log: slog.New(slog.NewTextHandler(&said, nil))}
	d.opts.FrontDoor = taken.Addr().String()
	require.NoError(t, d.openFrontDoor())
	assert.Nil(t, d.doorListener)
	assert.Contains(t, said.String(), "there is no front door, since another process listens at its address")
	d.opts.FrontDoorAsked = true
	assert.ErrorContains(t, d.openFrontDoor(), "cannot listen for the front door")
}
