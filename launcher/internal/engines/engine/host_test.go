package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAHostIsHonouredWhereItIsNoWiderThanTheLaunchers(t *testing.T) {
	for _, tt := range []struct{ asked, limit, want string }{
		{"", "", "127.0.0.1"},
		{"", "10.0.0.5", "10.0.0.5"},
		{"0.0.0.0", "", "127.0.0.1"},
		{"0.0.0.0", "127.0.0.1", "127.0.0.1"},
		{"::", "127.0.0.1", "127.0.0.1"},
		{"::0", "::1", "::1"},
		{"::ffff:0.0.0.0", "127.0.0.1", "127.0.0.1"},
		{"0.0.0.0", "10.0.0.5", "10.0.0.5"},
		{"0.0.0.0", "node-7", "node-7"},
		{"10.0.0.5", "127.0.0.1", "127.0.0.1"},
		{"10.0.0.5", "10.0.0.6", "10.0.0.6"},
		{"node-7", "127.0.0.1", "127.0.0.1"},
		{"localhost", "127.0.0.1", "localhost"},
		{"127.0.0.1", "0.0.0.0", "127.0.0.1"},
		{"::1", "127.0.0.1", "::1"},
		{"127.0.0.1", "10.0.0.5", "127.0.0.1"},
		{"127.0.0.1", "node-7", "127.0.0.1"},
		{"10.0.0.5", "10.0.0.5", "10.0.0.5"},
		{"10.0.0.5", "0.0.0.0", "10.0.0.5"},
		{"fd00::5", "::", "fd00::5"},
		{"0.0.0.0", "0.0.0.0", "0.0.0.0"},
		{"::", "0.0.0.0", "::"},
		{"node-7", "node-7", "node-7"},
	} {
		assert.Equal(t, tt.want, PublicHost(tt.asked, tt.limit), "--host %q, instance_host %q", tt.asked, tt.limit)
	}
}

func TestWhatBecomesOfAHostIsSaid(t *testing.T) {
	for _, tt := range []struct{ asked, limit, note, refusal string }{
		{"0.0.0.0", "", "reaches further than the launcher's instance_host, which is 127.0.0.1: the public port listens on 127.0.0.1", ""},
		{"::", "10.0.0.5", "the public port listens on 10.0.0.5", ""},
		{"127.0.0.1", "0.0.0.0", "the public port listens on 127.0.0.1", ""},
		{"10.0.0.5", "10.0.0.5", "the public port listens on 10.0.0.5", ""},
		{"10.0.0.5", "10.0.0.6", "", "listen only on 10.0.0.6 (its instance_host)"},
		{"node-7", "", "", "listen only on 127.0.0.1 (its instance_host)"},
	} {
		r := Request{Args: []string{"m", "--host", tt.asked}, InstanceHost: tt.limit}
		if tt.refusal != "" {
			assert.Contains(t, refused(t, r).Message, tt.refusal)
			continue
		}
		p, err := NewVLLM(VLLMOptions{}).Plan(r)
		require.NoError(t, err)
		require.Len(t, p.Notes, 1)
		assert.Contains(t, p.Notes[0], "--host "+tt.asked)
		assert.Contains(t, p.Notes[0], tt.note)
	}
}
