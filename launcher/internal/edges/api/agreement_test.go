package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/conformance/openapi"
)

// goType finds what only Go calls so.
var goType = regexp.MustCompile(`\bjson: |\bGo\b|\bu?int(8|16|32|64)?\b|\bfloat(32|64)\b|\bbool\b|\binterface\b|\bstruct\b|\bmap\[|\[\](string|byte|any)|\*?launcherapi\.|<nil>|\bnil\b|strconv`)

type object = map[string]any

// tree is the API's document as plain values.
func tree(t *testing.T) object {
	t.Helper()
	text, err := api.Document()
	require.NoError(t, err)
	text, err = yaml.YAMLToJSON(text)
	require.NoError(t, err)
	var v object
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

// values are of every type, in every spelling, as JSON.
var values = []string{
	`null`, `true`, `0`, `1`, `1.0`, `1e0`, `10E-1`, `2.00`, `1.5`, `-1`, `-0`, `1e30`, `9007199254740993.0`, `9223372036`, `9223372037`,
	`""`, `"x"`, `"vllm"`, `"stop"`, `"fork"`, `"1m30s"`, `".5s"`, `"1.2.3s"`, `"-1s"`, `"5."`, `"5.s"`, `"1s1"`, `"a b"`, `"1"`,
	`[]`, `["x"]`, `[null]`, `[1]`, `[[]]`, `{}`, `{"x":"y"}`, `{"x":null}`, `{"x":1}`, `{"x":{"from_file":"/f"}}`, `{"x":{"from_file":""}}`, `{"x":{"from_file":null}}`, `{"x":{"from_file":"/f","or":1}}`,
}

// bodies gives bodies for a schema: each of its members with each value, those
// of the members further inside too, and each value in place of the body.
func bodies(document, schema object) []string {
	for schema["$ref"] != nil {
		schema = document["components"].(object)["schemas"].(object)[path.Base(schema["$ref"].(string))].(object)
	}
	all := slices.Clone(values)
	members, _ := schema["properties"].(object)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		inside := members[name].(object)
		if alternatives, ok := inside["oneOf"].([]any); ok {
			inside = alternatives[0].(object)
		}
		more := values
		if inside["$ref"] != nil {
			more = bodies(document, inside)
		}
		for _, value := range more {
			all = append(all, `{"`+name+`":`+value+`}`)
		}
	}
	return all
}

func TestTheDocumentAndTheServerTakeTheSameBodies(t *testing.T) {
	document := tree(t)
	r := newRig(t)
	r.create(t, "a")
	r.swaps.Next(apitest.Over(result, nil), nil)
	tried := 0
	for where, item := range document["paths"].(object) {
		for method, operation := range item.(object) {
			described, ok := operation.(object)["requestBody"].(object)
			if !ok {
				continue
			}
			content, ok := described["content"].(object)["application/json"].(object)
			if !ok { // a stream
				continue
			}
			schema := content["schema"].(object)
			for _, body := range bodies(document, schema) {
				tried++
				id := "a"
				if method == "put" {
					id = fmt.Sprintf("new-%d", tried)
				}
				at := strings.ReplaceAll(where, "{instance_id}", id)
				got := r.do(t, strings.ToUpper(method), at, body)
				req, err := http.NewRequest(strings.ToUpper(method), r.URL+at, nil)
				require.NoError(t, err)
				refused := r.document.Request(req, []byte(body))
				if refused == nil {
					assert.Less(t, got.status, 300, "%s %s %s: the document allows what the server refuses: %s", method, at, body, got.body)
				} else { // with success the rig's client would complain
					assert.Contains(t, []int{400, 422}, got.status, "%s %s %s: the document refuses: %v", method, at, body, refused)
				}
				if got.status >= 300 {
					assert.NotRegexp(t, goType, got.problem(t).Detail, "%s %s %s", method, at, body)
				}
			}
		}
	}
	assert.Greater(t, tried, 1000)
}

func TestTheServerTakesNoParameterThatTheDocumentRefuses(t *testing.T) {
	document := tree(t)
	r := newRig(t)
	r.create(t, "a")
	for where, item := range document["paths"].(object) {
		for method, operation := range item.(object) {
			parameters, _ := operation.(object)["parameters"].([]any)
			for _, p := range parameters {
				p := p.(object)
				if p["in"] == "path" && method != "put" {
					continue // any other names no instance
				}
				for _, value := range []string{
					"x", "true", "-1", "1.0", "1e0", "99999999999999999999", "18446744073709551616", "10s", "-1s", "1ms", "soon", "NaN", "1e300", "{}", "[]", "null", strings.Repeat("1", 300),
				} {
					at := strings.ReplaceAll(where, "{instance_id}", "a")
					var header []string
					switch p["in"] {
					case "path":
						at = strings.ReplaceAll(where, "{instance_id}", url.PathEscape(value))
					case "query":
						at += "?" + p["name"].(string) + "=" + url.QueryEscape(value)
					case "header":
						header = []string{p["name"].(string), value}
					}
					body := ""
					if operation.(object)["requestBody"] != nil {
						body = `{}`
					}
					r.swaps.Next(apitest.Over(result, nil), nil)
					resp := r.open(t, t.Context(), strings.ToUpper(method), at, body, header...)
					if resp.StatusCode < 300 { // the rig's client has held the request against the document
						require.NoError(t, resp.Body.Close())
						continue
					}
					content, err := io.ReadAll(resp.Body)
					require.NoError(t, errors.Join(err, resp.Body.Close()))
					problem := answer{resp.StatusCode, resp.Header, string(content)}.problem(t)
					assert.Contains(t, []int{400, 404, 410, 416, 422}, problem.Status, "%s %s %v", method, at, header)
					assert.NotRegexp(t, goType, problem.Detail, "%s %s %v", method, at, header)
				}
			}
		}
	}
}

func TestTheDocumentSaysWhoNeedsAToken(t *testing.T) {
	_, token := tokenFile(t, "s3cret")
	for name, change := range map[string]func(*api.Options){
		"with a token":                     func(o *api.Options) { o.Access = token },
		"with a token and metrics for all": func(o *api.Options) { o.Access, o.PublicMetrics = token, true },
		"without a token":                  func(*api.Options) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, change)
			served, err := openapi.Read([]byte(r.do(t, http.MethodGet, "/openapi.json", "", "Authorization", "Bearer s3cret").body))
			require.NoError(t, err)
			for _, operation := range served.Operations() {
				method, where, _ := strings.Cut(operation, " ")
				resp := r.open(t, t.Context(), method, strings.ReplaceAll(where, "{instance_id}", "none"), "")
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, served.Secured(operation), resp.StatusCode == http.StatusUnauthorized, "%s: %d", operation, resp.StatusCode)
			}
		})
	}
	for _, operation := range document().Operations() {
		assert.False(t, document().Secured(operation), "the document in spec is that of launchers with a token and without one")
	}
}

func TestAWholeNumberIsAnIntegerHoweverItIsWritten(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	for _, level := range []string{"2", "2.0", "2e0", "0.2e1", "20E-1", "2.000", "2.0e+0"} {
		got := r.do(t, http.MethodPost, instancesPath+"/a/sleep", `{ "timeout" : "1m0s","level":`+level+` , "drain_timeout":0.5}`)
		require.Equal(t, http.StatusOK, got.status, "%s: %s", level, got.body)
		assert.Contains(t, r.instances.Record(), `sleep "a" level=2 drain=500ms limit=1m0s`)
	}
	body := `{"options":"--a 1.0 \"2e0\" \\ 3.0","annotations":{"1.0":"1e0 \\\" 2.0"}}`
	got := decode[launcherapi.Instance](t, r.do(t, http.MethodPost, instancesPath, body).body)
	assert.Equal(t, `--a 1.0 "2e0" \ 3.0`, *got.Options, "what is text stays as it is")
	assert.Equal(t, map[string]string{"1.0": `1e0 \" 2.0`}, got.Annotations)
}

func TestAMethodThatAPathDoesNotTakeIsAProblemDocumentToHeadToo(t *testing.T) {
	r := newRig(t)
	for _, method := range []string{http.MethodHead, http.MethodTrace, http.MethodGet, http.MethodPatch, "BREW"} {
		got := r.do(t, method, swapPath, "")
		assert.Equal(t, http.StatusMethodNotAllowed, got.status, method)
		assert.Equal(t, "POST, DELETE, OPTIONS", got.header.Get("Allow"), method)
		assert.Equal(t, "application/problem+json", got.header.Get("Content-Type"), method)
		assert.Equal(t, method == http.MethodHead, got.body == "", method)
	}
}
