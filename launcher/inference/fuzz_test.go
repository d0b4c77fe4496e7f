package inference

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// sized gives its bytes in portions of one size.
type sized struct {
	data []byte
	size int
}

func (s *sized) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.data[:min(s.size, len(s.data))])
	s.data = s.data[n:]
	return n, nil
}

// modelsOf gives the values of each member model of an object, as encoding/json reads it.
func modelsOf(data []byte) (models []json.RawMessage, isObject bool) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); !json.Valid(data) || trimmed[0] != '{' {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	_, _ = dec.Token()
	for dec.More() {
		key, _ := dec.Token()
		var value json.RawMessage
		_ = dec.Decode(&value)
		if key == "model" {
			models = append(models, value)
		}
	}
	return models, true
}

func seeds(f *testing.F) {
	f.Helper()
	for i, seed := range []string{
		`{"model": "m"}`, `{"a": [1, -0.5e+7, true, null, "\u00e9\n"], "model": "\ud83d\ude00"}`, `{"model": "m", "model": "m"}`, `{"mod\u0065l": "x", "stream": true}`,
		`{"model": 1}`, `{"model": ""}`, `[]`, `{"a": {"model": "b"}}`, `{} {}`, `{"a": 01}`, `{"a": "` + "\x01" + `"}`, `{"a": -}`, `{"a": tru}`, ` { } `, `{"a":[[],{}],"b":{"c":{}}}`,
		`{"model": "` + "\xff" + `", "` + "\xff" + `": 1}`, `{"a":1,}`, `{,"a":1}`, `{"a":[1,]}`, `{"a"}`, `{"a":1.e5}`, `{"a":1E5}`, `{"\"": "\\"}`, `"x"`, "", `{"a":1]`, `{"a":[1}`, `{"a":1e5e5}`, `{"a":1e5.1}`, `{"a":1.5.1}`, `{"a":0.5}`, `{"a":1]`, `{"a":[1}`, `{"a":1e5e5}`, `{"a":1e5.1}`, `{"a":1.5.1}`, `{"a":0.5}`,
	} {
		f.Add([]byte(seed), i)
	}
}

// ReadModel finds the model that encoding/json finds, in whatever portions the body comes.
func FuzzReadModel(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = max(1, size%64)
		models, isObject := modelsOf(data)
		b, err := ReadModel(request(&sized{slices.Clone(data), size}, jsonType), limits)
		if err == nil {
			err = b.Complete()
		}
		var want string
		right := isObject && len(models) == 1 && json.Unmarshal(models[0], &want) == nil && want != "" && len(models[0]) <= mostCaptured
		require.Equal(t, right, err == nil, "%v", err)
		if err != nil {
			var known *Error
			require.ErrorAs(t, err, &known)
			return
		}
		require.Equal(t, want, b.Model)
		replayed, err := io.ReadAll(b.Replay())
		require.NoError(t, err)
		require.Equal(t, data, replayed)

		b, err = ReadModel(request(&sized{slices.Clone(data), size}, jsonType), limits)
		require.NoError(t, err)
		require.NoError(t, b.Rewrite("other", Params{}))
		sent, err := io.ReadAll(iotest.OneByteReader(b))
		require.NoError(t, err)
		rewritten, err := Rewrite(data, "other", Params{})
		require.NoError(t, err)
		require.Equal(t, string(rewritten), string(sent))
	})
}

// Rewrite makes of an object what encoding/json would make of it.
func FuzzRewrite(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte, _ int) {
		p := Params{Strip: []string{"a", "b"}, Set: map[string]json.RawMessage{"b": json.RawMessage(`{"set":1}`)}}
		got, err := Rewrite(data, "served", p)
		if _, isObject := modelsOf(data); !isObject {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		var want, have map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &want))
		require.NoError(t, json.Unmarshal(got, &have))
		delete(want, "a")
		want["b"] = p.Set["b"]
		if want["model"] != nil {
			want["model"] = json.RawMessage(`"served"`)
		}
		require.Equal(t, want, have, string(got))
	})
}

// A form is refused, or read as it is.
func FuzzForm(f *testing.F) {
	f.Add([]byte("--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--B--\r\n"), 3)
	f.Add([]byte("x\r\n--B \r\n\r\n--B\r\n\r\n\r\nContent-Disposition: form-data; name=model\r\n\r\n--B-\r\n--B--"), 1)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		read := func(size int) (string, []byte, error) {
			b, err := ReadModel(request(&sized{slices.Clone(data), size}, "multipart/form-data; boundary=B"), limits)
			if err != nil {
				return "", nil, err
			}
			all, err := io.ReadAll(b)
			return b.Model, all, err
		}
		model, all, err := read(len(data) + 1)
		model2, all2, err2 := read(max(1, size%64))
		require.Equal(t, err == nil, err2 == nil, "%v, %v", err, err2)
		if err != nil {
			return
		}
		require.Equal(t, data, all)
		require.Equal(t, data, all2)
		require.Equal(t, model, model2)
	})
}
