package process

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEnvironmentHasThePublicAddressOfItsOwnTree(t *testing.T) {
	h := &Host{opts: Options{Mark: "mark"}}
	env := h.environment(Command{Name: "a", Env: []string{"X=1", "HOTSEAT_PUBLIC=0.0.0.0:80"}, Public: "127.0.0.1:8101"}, "")
	assert.Equal(t, []string{"X=1", "HOTSEAT_INSTANCE=a", "HOTSEAT_LAUNCHER=mark", "HOTSEAT_PUBLIC=127.0.0.1:8101"}, env)
	host, port, ok := PublicAddress(env, "mark", "a")
	assert.True(t, ok)
	assert.Equal(t, "127.0.0.1", host)
	assert.Equal(t, 8101, port)
	env = h.environment(Command{Name: "@helper", Env: env}, "")
	assert.Equal(t, []string{"X=1", "HOTSEAT_INSTANCE=@helper", "HOTSEAT_LAUNCHER=mark"}, env, "it is another tree's")
}

func TestPublicAddressIsCheckedWhereItIsRead(t *testing.T) {
	for address, good := range map[string]bool{
		":8101": true, "127.0.0.1:1": true, "[::1]:65535": true, "localhost:8101": true,
		"": false, "8101": false, ":0": false, ":65536": false, ":-1": false, ":+1": false, ":x": false,
		"elsewhere.example:8101": false, "127.0.0.1/8:8101": false, ":8101\n": false,
	} {
		_, _, ok := PublicAddress([]string{"HOTSEAT_INSTANCE=a", "HOTSEAT_LAUNCHER=mark", "HOTSEAT_PUBLIC=" + address}, "mark", "a")
		assert.Equal(t, good, ok, "%q", address)
	}
	for _, env := range [][]string{
		{"HOTSEAT_PUBLIC=:8101"},
		{"HOTSEAT_INSTANCE=b", "HOTSEAT_LAUNCHER=mark", "HOTSEAT_PUBLIC=:8101"},
		{"HOTSEAT_INSTANCE=a", "HOTSEAT_LAUNCHER=other", "HOTSEAT_PUBLIC=:8101"},
	} {
		_, _, ok := PublicAddress(env, "mark", "a")
		assert.False(t, ok, "%q", env)
	}
}
