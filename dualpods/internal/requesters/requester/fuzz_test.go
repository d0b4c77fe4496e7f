package requester

import (
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func FuzzProxyConfig(f *testing.F) {
	for _, seed := range []string{example, `{}`, `[]`, `null`, `{"address":"::1","port":1}`, `{"address":"a.b.","port":65535,"metrics_url":"http://a"}`, `{"address":"1.2.3.4","port":1}{}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		config, err := readConfig(content)
		if err != nil {
			var failed *failure
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, requesterapi.CodeInvalid, failed.Code)
			return
		}
		assert.NotEmpty(t, config.Binding)
		assert.NotZero(t, config.Port)
		assert.NotZero(t, config.ServingPort)
		require.NoError(t, checkConfig(config), "what was filled in is right too")
	})
}

func FuzzSetLog(f *testing.F) {
	f.Add("0", "", []byte("hello"))
	f.Add("3", "one", []byte("lo"))
	f.Add("-1", "", []byte{})
	f.Add("9223372036854775807", "one", []byte("x"))
	f.Fuzz(func(t *testing.T, start, binding string, chunk []byte) {
		out := &buffer{}
		relay := newLogRelay(out)
		_, err := relay.add(t.Context(), "one", 0, []byte("hello"))
		require.NoError(t, err)
		place, err := startPos(url.Values{requesterapi.ParamStartPos: {start}})
		if err != nil {
			return
		}
		before, length := relay.known().NextPos, len(out.String())
		if binding != "" && binding != relay.known().Name {
			before = place
		}
		got, err := relay.add(t.Context(), binding, place, chunk)
		var failed *failure
		if errors.As(err, &failed) {
			assert.Greater(t, place, *failed.NextPos)
			return
		}
		require.NoError(t, err)
		assert.Equal(t, before+int64(got.Written), got.NextPos)
		assert.Equal(t, length+got.Written, len(out.String()))
		assert.LessOrEqual(t, got.Written, len(chunk))
	})
}
