package openapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/conformance/openapi"
)

const document = `{"openapi": "3.1.0", "paths": {
  "/things/{id}": {"get": {"responses": {
    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
    "default": {"content": {"application/problem+json": {"schema": {"type": "object", "required": ["detail"]}}}}}}},
  "/things/watch": {"get": {"responses": {"200": {"content": {"application/x-ndjson": {"schema": {"$ref": "#/components/schemas/Thing"}}}}}}}},
 "components": {"schemas": {"Thing": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}, "additionalProperties": false}}}}`

func TestAnAnswerIsHeldAgainstTheDocument(t *testing.T) {
	for name, test := range map[string]struct {
		path, kind, body string
		status           int
		wrong            string // part of the complaint; empty: none
	}{
		"an answer as described passes":                     {"/things/a", "application/json", `{"name":"a"}`, 200, ""},
		"a missing field is told":                           {"/things/a", "application/json", `{}`, 200, "name"},
		"a field too many is told":                          {"/things/a", "application/json", `{"name":"a","size":1}`, 200, "size"},
		"what is no JSON is told":                           {"/things/a", "application/json", `name`, 200, "cannot read"},
		"a content type that is not described is told":      {"/things/a", "text/html", `hello`, 200, "text/html"},
		"a problem fits the default":                        {"/things/a", "application/problem+json", `{"detail":"d"}`, 403, ""},
		"a bad problem is told":                             {"/things/a", "application/problem+json", `{}`, 403, "detail"},
		"an error of the operation's own must be listed":    {"/things/a", "application/problem+json", `{"detail":"d"}`, 404, "status 404"},
		"the path without parameters goes first":            {"/things/watch", "application/x-ndjson", "{\"name\":\"a\"}\n{\"name\":\"b\"}\n", 200, ""},
		"a bad line of a stream is told":                    {"/things/watch", "application/x-ndjson", "{\"name\":\"a\"}\n{\"nome\":\"b\"}\n", 200, "nome"},
		"a status that is not described is told":            {"/things/watch", "application/x-ndjson", "", 201, "status 201"},
		"an error elsewhere that is no problem is told":     {"/other", "text/plain", "no", 404, "no problem document"},
		"an error elsewhere that is a problem passes":       {"/other", "application/problem+json", "{}", 404, ""},
		"an answer without a readable content type is told": {"/other", "///", "{}", 200, "content type"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			d, err := openapi.Read([]byte(document))
			require.NoError(t, err)
			var complaints []error
			client := http.Client{Transport: d.Transport(server.Client().Transport, func(err error) { complaints = append(complaints, err) })}
			resp, err := client.Get(server.URL + test.path)
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, test.body, string(body))
			if test.wrong == "" {
				assert.Empty(t, complaints)
				return
			}
			require.Len(t, complaints, 1)
			assert.ErrorContains(t, complaints[0], test.wrong)
		})
	}
}

const taking = `{"openapi": "3.1.0", "paths": {"/things/{id}": {"put": {
  "security": [{"token": []}],
  "parameters": [
    {"in": "path", "name": "id", "required": true, "schema": {"type": "string", "pattern": "^[a-z]+$"}},
    {"in": "query", "name": "deep", "schema": {"type": "boolean"}},
    {"in": "header", "name": "Count", "required": true, "schema": {"type": "integer", "maximum": 9}}],
  "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object", "properties": {"name": {"type": ["string", "null"]}}, "additionalProperties": false}}}},
  "responses": {"200": {"content": {"application/json": {}}}}},
  "get": {"security": [{"token": []}, {}], "responses": {}},
  "delete": {"responses": {}}}}}`

func TestARequestIsHeldAgainstTheDocument(t *testing.T) {
	d, err := openapi.Read([]byte(taking))
	require.NoError(t, err)
	for name, test := range map[string]struct {
		path, count, body string
		wrong             string // part of the complaint; empty: none
	}{
		"a request as described passes":          {"/things/a?deep=true", "3", `{"name":"a"}`, ""},
		"null passes where it is allowed":        {"/things/a", "3", `{"name":null}`, ""},
		"1.0 is an integer":                      {"/things/a", "1.0", `{}`, ""},
		"a path parameter is looked at":          {"/things/A", "3", `{}`, "path parameter id"},
		"a query parameter is looked at":         {"/things/a?deep=down", "3", `{}`, "query parameter deep"},
		"a header is looked at":                  {"/things/a", "10", `{}`, "header parameter Count"},
		"a header that is missing is told":       {"/things/a", "", `{}`, "Count is missing"},
		"a body that is missing is told":         {"/things/a", "3", ``, "body is missing"},
		"a member of the wrong type is told":     {"/things/a", "3", `{"name":1}`, "name"},
		"a member that does not exist is told":   {"/things/a", "3", `{"size":1}`, "size"},
		"what is no operation is not looked at":  {"/others", "", `[]`, ""},
		"what the query has beside is let alone": {"/things/a?x=y", "3", `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodPut, test.path, nil)
			if test.count != "" {
				req.Header.Set("Count", test.count)
			}
			err := d.Request(req, []byte(test.body))
			if test.wrong == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.wrong)
		})
	}
	assert.True(t, d.Secured("PUT /things/{id}"))
	assert.False(t, d.Secured("GET /things/{id}"), "it may be called without")
	assert.False(t, d.Secured("DELETE /things/{id}"))
}

func TestOnlySuccessCountsAsExercised(t *testing.T) {
	status := http.StatusNotFound
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", map[int]string{404: "application/problem+json", 200: "application/json"}[status])
		w.WriteHeader(status)
	}))
	defer server.Close()
	d, err := openapi.Read([]byte(document))
	require.NoError(t, err)
	client := http.Client{Transport: d.Transport(server.Client().Transport, func(error) {})}
	require.Equal(t, []string{"GET /things/watch", "GET /things/{id}"}, d.Missing())
	for range 2 {
		resp, err := client.Get(server.URL + "/things/x")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		if status == http.StatusNotFound {
			assert.Len(t, d.Missing(), 2)
		}
		status = http.StatusOK
	}
	assert.Equal(t, []string{"GET /things/watch"}, d.Missing())
}
