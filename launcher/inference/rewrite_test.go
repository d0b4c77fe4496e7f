package inference

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRewriteKeepsAllOtherBytes(t *testing.T) {
	set := func(names ...string) map[string]json.RawMessage {
		all := map[string]json.RawMessage{}
		for i := 0; i < len(names); i += 2 {
			all[names[i]] = json.RawMessage(names[i+1])
		}
		return all
	}
	for name, tt := range map[string]struct {
		body string
		p    Params
		want string
	}{
		"the model":           {`{ "model" : "a\u0062", "x":1e3 } `, Params{}, `{ "model" : "a/<b>", "x":1e3 } `},
		"no model":            {`{}`, Params{}, `{}`},
		"strip the first":     {`{ "x": 1, "model": "a"}`, Params{Strip: []string{"x"}}, `{"model": "a/<b>"}`},
		"strip the last":      {`{"model": "a", "x": [1, 2] }`, Params{Strip: []string{"x"}}, `{"model": "a/<b>" }`},
		"strip in the middle": {`{"model": "a", "x": {}, "y": 0}`, Params{Strip: []string{"x"}}, `{"model": "a/<b>", "y": 0}`},
		"strip all":           {"{\n \"x\": 1,\n \"y\": 2,\n \"x\": 3\n}", Params{Strip: []string{"x", "y", "z"}}, "{\n}"},
		"strip escaped":       {`{"\u0078": 1, "model": "a"}`, Params{Strip: []string{"x"}}, `{"model": "a/<b>"}`},
		"set what is there":   {`{"x": 1, "model": "a", "x": 2}`, Params{Set: set("x", `{"a":1}`)}, `{"x": {"a":1}, "model": "a/<b>", "x": {"a":1}}`},
		"set what is not":     {`{"model": "a" }`, Params{Set: set("y", "2", "x", "1")}, `{"model": "a/<b>","x":1,"y":2 }`},
		"set in nothing":      {`{ }`, Params{Set: set("x", "1")}, `{"x":1 }`},
		"strip and set":       {`{"x": 1, "y": 2}`, Params{Strip: []string{"x", "y"}, Set: set("z", "3", "y", "4")}, `{"y": 4,"z":3}`},
		"not deeper":          {`{"a": {"x": 1, "model": "b"}, "model": "a"}`, Params{Strip: []string{"x"}}, `{"a": {"x": 1, "model": "b"}, "model": "a/<b>"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Rewrite([]byte(tt.body), "a/<b>", tt.p)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
		})
	}
}

func TestRewriteOfABodyCompletesItForParameters(t *testing.T) {
	const body = `{"a": "` + "x" + `", "model": "alias", "temperature": 1, "tail": [1, 2, 3]}`
	for name, tt := range map[string]struct {
		p    Params
		want string
	}{
		"parameters":     {Params{Strip: []string{"temperature"}}, `{"a": "x", "model": "served", "tail": [1, 2, 3]}`},
		"the model only": {Params{}, `{"a": "x", "model": "served", "temperature": 1, "tail": [1, 2, 3]}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(iotest.OneByteReader(strings.NewReader(body)), jsonType)
			r.ContentLength = int64(len(body))
			b, err := ReadModel(r, limits)
			require.NoError(t, err)
			require.NoError(t, b.Rewrite("served", tt.p))
			all, err := io.ReadAll(b)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(all))
			assert.EqualValues(t, len(all), b.Length())
		})
	}
	b, err := ReadModel(request(iotest.OneByteReader(strings.NewReader(`{"model": "m", "temperature": x}`)), jsonType), limits)
	require.NoError(t, err)
	var got *Error
	require.ErrorAs(t, b.Rewrite("n", Params{Strip: []string{"x"}}), &got)
	assert.Equal(t, CodeNotJSON, got.Code)
}

func TestNameIsChangedWhereverChunksEnd(t *testing.T) {
	for pad := firstChunk - 40; pad < firstChunk+5; pad++ {
		before, after := `{"a":"`+strings.Repeat("x", pad)+`","model":`, `,"b":1}`
		b, err := ReadModel(request(strings.NewReader(before+`"a model"`+after), jsonType), limits)
		require.NoError(t, err)
		require.NoError(t, b.Complete())
		require.NoError(t, b.Rewrite("served", Params{}))
		all, err := io.ReadAll(b.Replay())
		require.NoError(t, err)
		require.Equal(t, before+`"served"`+after, string(all), pad)
	}
}
