// Package openapi holds a server against its OpenAPI 3.1 document: its answers
// by status, content type and schema, line by line where the answer is a stream,
// and the requests that it took by their parameters and bodies. It notes which
// operations were exercised.
package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is an OpenAPI document. Its methods may be called from several
// goroutines at once.
type Document struct {
	operations []*operation

	mu        sync.Mutex
	exercised map[string]bool
}

type operation struct {
	name      string // "GET /v2/things/{id}"
	method    string
	segments  []string
	responses map[string]contents // by status
	request   request
}

// contents are the schemas of an answer by media type; nil where there is none.
type contents map[string]*jsonschema.Schema

const (
	resource       = "openapi.json"
	problemContent = "application/problem+json"
)

// Read reads a document, which is JSON.
func Read(content []byte) (*Document, error) {
	var outline struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct{ Schema json.RawMessage }
			}
			described
		}
	}
	if err := json.Unmarshal(content, &outline); err != nil {
		return nil, fmt.Errorf("cannot read the OpenAPI document: %w", err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("cannot read the OpenAPI document: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(resource, parsed); err != nil {
		return nil, fmt.Errorf("cannot read the OpenAPI document: %w", err)
	}
	d := &Document{exercised: map[string]bool{}}
	for path, item := range outline.Paths {
		for method, described := range item {
			op := &operation{
				name: strings.ToUpper(method) + " " + path, method: strings.ToUpper(method),
				segments: strings.Split(path, "/"), responses: map[string]contents{},
			}
			if op.request, err = readRequest(compiler, described.described, pointer("paths", path, method)); err != nil {
				return nil, err
			}
			for status, answer := range described.Responses {
				op.responses[status] = contents{}
				for kind, media := range answer.Content {
					if media.Schema == nil {
						op.responses[status][kind] = nil
						continue
					}
					at := pointer("paths", path, method, "responses", status, "content", kind, "schema")
					if op.responses[status][kind], err = compile(compiler, at); err != nil {
						return nil, err
					}
				}
			}
			d.operations = append(d.operations, op)
		}
	}
	return d, nil
}

func compile(compiler *jsonschema.Compiler, at string) (*jsonschema.Schema, error) {
	schema, err := compiler.Compile(resource + "#" + at)
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema at %s: %w", at, err)
	}
	return schema, nil
}

// pointer makes a JSON pointer (RFC 6901), escaped to be part of a URL.
func pointer(parts ...string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	var at strings.Builder
	for _, p := range parts {
		at.WriteString("/" + escape.Replace(p))
	}
	return at.String()
}

// Operations names every operation, such as "GET /v2/things/{id}".
func (d *Document) Operations() []string {
	var names []string
	for _, op := range d.operations {
		names = append(names, op.name)
	}
	slices.Sort(names)
	return names
}

// Missing names the operations that no answer of success was checked of.
func (d *Document) Missing() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(d.Operations(), func(name string) bool { return d.exercised[name] })
}

// find gives the operation of a path, the one with the fewest parameters where
// several fit, and nil when there is none.
func (d *Document) find(method, path string) *operation {
	var best *operation
	fewest := 0
	for _, op := range d.operations {
		n, ok := op.fits(method, strings.Split(path, "/"))
		if ok && (best == nil || n < fewest) {
			best, fewest = op, n
		}
	}
	return best
}

func (op *operation) fits(method string, path []string) (params int, ok bool) {
	if op.method != method || len(path) != len(op.segments) {
		return 0, false
	}
	for n, segment := range op.segments {
		switch {
		case strings.HasPrefix(segment, "{") && path[n] != "":
			params++
		case segment != path[n]:
			return 0, false
		}
	}
	return params, true
}

// general are the statuses that any operation may answer with: who calls, or
// what was sent as a body, has nothing to do with the operation, or the server
// has a fault. They may stand under "default"; every other has to be listed.
var general = []int{
	http.StatusForbidden, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusInternalServerError,
}

// schemaOf finds what an answer must be like. A schema that is nil takes
// anything. ok is false where there is no body to look at.
func (d *Document) schemaOf(resp *http.Response) (kind string, schema *jsonschema.Schema, err error) {
	kind, _, err = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return "", nil, fmt.Errorf("content type %q: %w", resp.Header.Get("Content-Type"), err)
	}
	op := d.find(resp.Request.Method, resp.Request.URL.Path)
	if op == nil {
		return kind, nil, undocumented(resp.StatusCode, kind)
	}
	answers, known := op.responses[strconv.Itoa(resp.StatusCode)]
	if !known && slices.Contains(general, resp.StatusCode) {
		answers, known = op.responses["default"]
	}
	if !known {
		return kind, nil, fmt.Errorf("status %d is not in the document", resp.StatusCode)
	}
	schema, known = answers[kind]
	if !known {
		return kind, nil, fmt.Errorf("content type %s of status %d is not in the document", kind, resp.StatusCode)
	}
	if resp.StatusCode < 400 {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.exercised[op.name] = true
	}
	return kind, schema, nil
}

// undocumented judges the answer to a request that is no operation.
func undocumented(status int, kind string) error {
	if status >= 400 && kind != problemContent {
		return fmt.Errorf("status %d is no problem document but %s", status, kind)
	}
	return nil
}
