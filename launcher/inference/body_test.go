package inference

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var limits = Limits{JSON: 8<<20 + 100, Form: 41 << 20}

const jsonType = "application/json"

// request has a body of unknown length, as one that is sent in chunks.
func request(body io.Reader, contentType string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", io.MultiReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func TestMistakesOfBodiesAreErrorsOfTheirOwn(t *testing.T) {
	form := func(body string) [2]string {
		return [2]string{strings.ReplaceAll(body, "\n", "\r\n"), "multipart/form-data; boundary=B"}
	}
	inJSON := func(body string) [2]string { return [2]string{body, jsonType} }
	const field = "--B\nContent-Disposition: form-data; name=\"model\"\n\nm\n"
	small := Limits{JSON: 64 << 10, Form: 64 << 10}
	for name, tt := range map[string]struct {
		body [2]string
		want Error
	}{
		"no model":              {inJSON(`{"messages": [{"model": "m"}]}`), Error{400, "the request lacks the field model: say which model is to answer", typeInvalid, "model", CodeModelMissing, 0}},
		"a model in capitals":   {inJSON(`{"Model": "m"}`), Error{400, "the request lacks the field model: say which model is to answer", typeInvalid, "model", CodeModelMissing, 0}},
		"an empty model":        {inJSON(`{"model": ""}`), Error{400, "the field model is empty: say which model is to answer", typeInvalid, "model", CodeModelMissing, 0}},
		"a number":              {inJSON(`{"model": 5}`), Error{400, "model must be a string, not a number", typeInvalid, "model", CodeModelType, 0}},
		"null":                  {inJSON(`{"model": null}`), Error{400, "model must be a string, not null", typeInvalid, "model", CodeModelType, 0}},
		"an object":             {inJSON(`{"model": {"a": 1}}`), Error{400, "model must be a string, not an object", typeInvalid, "model", CodeModelType, 0}},
		"a list":                {inJSON(`{"model": ["m"]}`), Error{400, "model must be a string, not a list", typeInvalid, "model", CodeModelType, 0}},
		"the same model twice":  {inJSON(`{"model": "m", "model": "m"}`), Error{400, "the request names a model twice: name one", typeInvalid, "model", CodeModelTwice, 0}},
		"two models":            {inJSON(`{"model": "m", "a": {}, "mod\u0065l": "n"}`), Error{400, "the request names a model twice: name one", typeInvalid, "model", CodeModelTwice, 0}},
		"a name without end":    {inJSON(`{"model": "` + strings.Repeat("m", 4000) + `"}`), Error{400, "the name of the model is longer than 2048 bytes", typeInvalid, "model", CodeModelNotFound, 0}},
		"a list for a body":     {inJSON(`["model"]`), Error{400, "the body is no JSON object: '[' at byte 0, where { is expected", typeInvalid, "", CodeNotJSON, 0}},
		"no JSON":               {inJSON(`{"model": "m",}`), Error{400, "the body is no JSON object: '}' at byte 14, where a key is expected", typeInvalid, "", CodeNotJSON, 0}},
		"something behind":      {inJSON(`{"model": "m"}{}`), Error{400, "the body is no JSON object: '{' at byte 14, where the end is expected", typeInvalid, "", CodeNotJSON, 0}},
		"an open object":        {inJSON(`{"model": "m"`), Error{400, "the body is no JSON object: it ends at byte 13, before its end", typeInvalid, "", CodeNotJSON, 0}},
		"nothing":               {inJSON(``), Error{400, "the body is no JSON object: it ends at byte 0, before its end", typeInvalid, "", CodeNotJSON, 0}},
		"too large":             {inJSON(`{"model": "m", "a": "` + strings.Repeat("x", 64<<10) + `"}`), Error{413, "the body is larger than 65536 bytes", typeInvalid, "", CodeTooLarge, 0}},
		"no content type":       {[2]string{`{"model": "m"}`, ""}, Error{400, `the content type must be application/json or multipart/form-data, not ""`, typeInvalid, "", CodeContentType, 0}},
		"another content type":  {[2]string{`{"model": "m"}`, "text/plain"}, Error{400, `the content type must be application/json or multipart/form-data, not "text/plain"`, typeInvalid, "", CodeContentType, 0}},
		"a form without bounds": {[2]string{"", "multipart/form-data"}, Error{400, "the content type multipart/form-data has no boundary", typeInvalid, "", CodeNotForm, 0}},
		"a form without model":  {form("--B\nContent-Disposition: form-data; name=\"x\"\n\nm\n--B--\n"), Error{400, "the request lacks the field model: say which model is to answer", typeInvalid, "model", CodeModelMissing, 0}},
		"a file named model":    {form("--B\nContent-Disposition: form-data; name=\"model\"; filename=\"f\"\n\nm\n--B--\n"), Error{400, "the request lacks the field model: say which model is to answer", typeInvalid, "model", CodeModelMissing, 0}},
		"a form with two":       {form(field + field + "--B--\n"), Error{400, "the request names a model twice: name one", typeInvalid, "model", CodeModelTwice, 0}},
		"a form without end":    {form(field + "--B"), Error{400, "the body is no multipart form: its last boundary is missing", typeInvalid, "", CodeNotForm, 0}},
		"endless headers":       {form("--B\n" + strings.Repeat("x", 20<<10)), Error{400, "the body is no multipart form: the headers of a part are too long", typeInvalid, "", CodeNotForm, 0}},
		"a long form value":     {form("--B\nContent-Disposition: form-data; name=model\n\n" + strings.Repeat("x", 3000)), Error{400, "the name of the model is longer than 2048 bytes", typeInvalid, "model", CodeModelNotFound, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			for chunking, wrap := range chunkings {
				b, err := ReadModel(request(wrap(strings.NewReader(tt.body[0])), tt.body[1]), small)
				if err == nil {
					err = b.Complete()
				}
				var got *Error
				require.ErrorAs(t, err, &got, chunking)
				assert.Equal(t, tt.want, *got, chunking)
			}
		})
	}
}

var chunkings = map[string]func(io.Reader) io.Reader{
	"whole": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader, "with the end": iotest.DataErrReader,
}

func TestDeclaredLengthBeyondTheLimitIsRefusedUnread(t *testing.T) {
	r := request(iotest.ErrReader(errors.New("read")), jsonType)
	r.ContentLength = limits.JSON + 1
	_, err := ReadModel(r, limits)
	var got *Error
	require.ErrorAs(t, err, &got)
	assert.Equal(t, http.StatusRequestEntityTooLarge, got.Status)
}

func TestBodyThatIsCutOffIsAnError(t *testing.T) {
	cut := iotest.ErrReader(io.ErrUnexpectedEOF)
	_, err := ReadModel(request(io.MultiReader(strings.NewReader(`{"a": 1`), cut), jsonType), limits)
	var got *Error
	require.ErrorAs(t, err, &got)
	assert.Equal(t, CodeCutOff, got.Code)

	b, err := ReadModel(request(io.MultiReader(strings.NewReader(`{"model": "m", `), cut), jsonType), limits)
	require.NoError(t, err)
	_, err = io.ReadAll(b)
	require.ErrorAs(t, err, &got)
	assert.Equal(t, "the body was cut off after 15 bytes", got.Message)

	_, err = ReadModel(request(iotest.ErrReader(io.ErrClosedPipe), jsonType), limits)
	assert.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestModelThatComesFirstIsReadBeforeTheRest(t *testing.T) {
	rest, sender := io.Pipe()
	b, err := ReadModel(request(io.MultiReader(strings.NewReader(`{"model":"m","stream":true,`), rest), jsonType), limits)
	require.NoError(t, err) // and nothing was sent yet
	assert.Equal(t, "m", b.Model)
	tail := `"messages":"` + strings.Repeat("x", 1<<20) + `"}`
	go func() {
		_, _ = io.WriteString(sender, tail)
		_ = sender.Close()
	}()
	all, err := io.ReadAll(b)
	require.NoError(t, err)
	assert.Equal(t, `{"model":"m","stream":true,`+tail, string(all))
	stream, given := b.Streams()
	assert.True(t, stream && given)
	assert.Less(t, cap(b.held.parts[0])*len(b.held.parts), 200<<10, "what was sent on is not kept")
}

func TestSecondModelStopsABodyThatIsSentOn(t *testing.T) {
	b, err := ReadModel(request(iotest.OneByteReader(strings.NewReader(`{"model":"m","a":1,"model":"n"}`)), jsonType), limits)
	require.NoError(t, err)
	sent, err := io.ReadAll(b)
	var got *Error
	require.ErrorAs(t, err, &got)
	assert.Equal(t, CodeModelTwice, got.Code)
	assert.True(t, strings.HasPrefix(`{"model":"m","a":1,"model":"n"`, string(sent)))
}

func TestModelThatComesLastIsFound(t *testing.T) {
	body := `{"messages":"` + strings.Repeat("x", 8<<20) + `","model":"m"}`
	r := request(strings.NewReader(body), jsonType)
	r.ContentLength = int64(len(body))
	b, err := ReadModel(r, limits)
	require.NoError(t, err)
	require.NoError(t, b.Complete())
	assert.EqualValues(t, len(body), b.Length())
	require.NoError(t, b.Rewrite("served/name", Params{}))
	assert.EqualValues(t, len(body)+10, b.Length())
	for range 2 {
		all, err := io.ReadAll(b.Replay())
		require.NoError(t, err)
		assert.True(t, string(all) == body[:len(body)-len(`"m"}`)]+`"served/name"}`)
	}
}

// upload is a form with a file of 40 MiB, and its content type.
func upload(t *testing.T, modelFirst bool, model string) ([]byte, string) {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	field := func() { require.NoError(t, w.WriteField("model", model)) }
	if modelFirst {
		field()
	}
	file, err := w.CreateFormFile("file", "model")
	require.NoError(t, err)
	block := strings.Repeat("sound", 800) + "\r\n--" + w.Boundary()[:30] + "\r\r\n\n--"
	_, err = file.Write(bytes.Repeat([]byte(block), 40<<20/len(block)))
	require.NoError(t, err)
	require.NoError(t, w.WriteField("language", "en"))
	if !modelFirst {
		field()
	}
	require.NoError(t, w.Close())
	return body.Bytes(), w.FormDataContentType()
}

func TestModelOfAFormIsFoundBeforeOrAfterItsFile(t *testing.T) {
	for name, first := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			body, contentType := upload(t, first, "whisper")
			r := request(bytes.NewReader(body), contentType)
			r.ContentLength = int64(len(body))
			b, err := ReadModel(r, limits)
			require.NoError(t, err)
			assert.Equal(t, "whisper", b.Model)
			held := 0
			for _, part := range b.held.parts {
				held += cap(part)
			}
			if first {
				assert.Less(t, held, 200<<10)
			}
			assert.Less(t, held, len(body)+200<<10, "the file is held once")
			require.NoError(t, b.Rewrite("w", Params{Strip: []string{"language"}}))
			all, err := io.ReadAll(b)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(bytes.Replace(body, []byte("\r\n\r\nwhisper\r\n"), []byte("\r\n\r\nw\r\n"), 1), all))
			assert.EqualValues(t, len(all), b.Length())
		})
	}
}

func TestFormsAreReadInAnyPortions(t *testing.T) {
	body := strings.ReplaceAll("preamble --B\n--B\nContent-Disposition: form-data; name=empty\n\n\n--B \t\nContent-Disposition: form-data; name=file; filename=x\nContent-Type: a/b\n\n--BB\nContent-Disposition: form-data; name=model\n\nfalse\n--B-\n\n--B\ncontent-disposition:form-data; name=\"model\"\n\n--Bx\n--B--\nepilogue", "\n", "\r\n")
	for chunking, wrap := range chunkings {
		b, err := ReadModel(request(wrap(strings.NewReader(body)), `multipart/form-data; boundary="B"`), limits)
		require.NoError(t, err, chunking)
		assert.Equal(t, "--Bx", b.Model, chunking)
		require.NoError(t, b.Complete(), chunking)
		require.NoError(t, b.Rewrite("--Bx", Params{}))
		all, err := io.ReadAll(b)
		require.NoError(t, err)
		assert.Equal(t, body, string(all), chunking)
	}
}

func TestBodiesOfAnyContentTypeAreJSONWhereOllamasAre(t *testing.T) {
	l := limits
	l.AnyContentType = true
	for _, contentType := range []string{"", "application/x-www-form-urlencoded", "text/plain; x"} {
		b, err := ReadModel(request(strings.NewReader(`{"model": "m", "stream": false}`), contentType), l)
		require.NoError(t, err)
		require.NoError(t, b.Complete())
		stream, given := b.Streams()
		assert.True(t, !stream && given)
	}
	for _, contentType := range []string{"application/vnd.api+json; charset=utf-8", "Application/JSON; charset"} {
		b, err := ReadModel(request(strings.NewReader(`{"model": "m"}`), contentType), limits)
		require.NoError(t, err)
		_, given := b.Streams()
		assert.False(t, given)
	}
}

func TestBodiesOfAllRequestsAreBoundedTogether(t *testing.T) {
	l := limits
	l.Memory = NewMemory(firstChunk + 2*nextChunk)
	long := `{"a":"` + strings.Repeat("x", nextChunk) + `","model":"m"}`
	first, err := ReadModel(request(strings.NewReader(long), jsonType), l)
	require.NoError(t, err)
	_, err = ReadModel(request(strings.NewReader(long), jsonType), l)
	var got *Error
	require.ErrorAs(t, err, &got, "what it took is given back")
	assert.Equal(t, http.StatusServiceUnavailable, got.Status)
	assert.Equal(t, CodeNoMemory, got.Code)
	assert.Positive(t, got.RetryAfter)

	require.NoError(t, first.Close())
	_, err = first.Read(make([]byte, 1))
	assert.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	second, err := ReadModel(request(strings.NewReader(long), jsonType), l)
	require.NoError(t, err)
	require.NoError(t, second.Complete())
	require.NoError(t, second.Rewrite("n", Params{Strip: []string{"a"}}))
	require.NoError(t, second.Close())

	sent, err := ReadModel(request(strings.NewReader(`{"model":"m","a":"`+strings.Repeat("x", 20*nextChunk)+`"}`), jsonType), l)
	require.NoError(t, err)
	require.True(t, l.Memory.take(2*nextChunk))
	_, err = io.Copy(io.Discard, sent)
	require.NoError(t, err, "a body that is sent on needs no further chunk")
	l.Memory.left.Add(2 * nextChunk)
	require.NoError(t, sent.Close())
	require.NoError(t, sent.Close(), "twice")
	assert.EqualValues(t, firstChunk+2*nextChunk, l.Memory.left.Load())
}

func TestAheadReadsNoFurtherThanItMay(t *testing.T) {
	for most, whole := range map[int64]bool{10: false, 1 << 20: true} {
		text := `{"model":"a","prompt":"` + strings.Repeat("x", 300<<10) + `"}`
		source := &counted{Reader: strings.NewReader(text)}
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", source)
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = -1
		b, err := ReadModel(r, Limits{JSON: 1 << 20})
		require.NoError(t, err)
		got, err := b.Ahead(most)
		require.NoError(t, err)
		assert.Equal(t, whole, got)
		assert.Equal(t, whole, source.n == len(text))
		assert.Equal(t, whole, b.Length() == int64(len(text)))
		all, err := io.ReadAll(b)
		require.NoError(t, err)
		assert.Equal(t, text, string(all))
	}
}

// counted counts the bytes that were read of it.
type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}
