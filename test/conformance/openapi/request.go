package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// request is what an operation takes.
type request struct {
	parameters []parameter
	needsBody  bool
	body       *jsonschema.Schema // nil: it takes none
	secured    bool               // nobody is let in without one of the security schemes
}

type parameter struct {
	in, name string
	required bool
	schema   *jsonschema.Schema
}

// described is what a document says of a request.
type described struct {
	Parameters []struct {
		In, Name string
		Required bool
	}
	RequestBody *struct {
		Required bool
		Content  map[string]json.RawMessage
	}
	Security []map[string][]string
}

const jsonContent = "application/json"

func readRequest(compiler *jsonschema.Compiler, from described, at string) (request, error) {
	r := request{secured: len(from.Security) > 0}
	for _, alternative := range from.Security {
		r.secured = r.secured && len(alternative) > 0
	}
	for n, p := range from.Parameters {
		schema, err := compile(compiler, at+pointer("parameters", strconv.Itoa(n), "schema"))
		if err != nil {
			return r, err
		}
		r.parameters = append(r.parameters, parameter{p.In, p.Name, p.Required, schema})
	}
	if from.RequestBody == nil || from.RequestBody.Content[jsonContent] == nil {
		return r, nil
	}
	r.needsBody = from.RequestBody.Required
	var err error
	r.body, err = compile(compiler, at+pointer("requestBody", "content", jsonContent, "schema"))
	return r, err
}

// Secured says whether an operation, such as "GET /v2/things/{id}", lets nobody
// in without a token or the like.
func (d *Document) Secured(operation string) bool {
	for _, op := range d.operations {
		if op.name == operation {
			return op.request.secured
		}
	}
	return false
}

// Request says what of a request the document does not allow: its body, which
// is JSON, and its parameters in the path, the query and the headers. Query
// parameters and headers that the document does not know are not looked at,
// nor are requests that are no operation.
func (d *Document) Request(req *http.Request, body []byte) error {
	op := d.find(req.Method, req.URL.Path)
	if op == nil {
		return nil
	}
	for _, p := range op.request.parameters {
		value, given := p.of(req, op)
		switch {
		case !given && p.required:
			return fmt.Errorf("the %s parameter %s is missing", p.in, p.name)
		case given:
			if err := p.schema.Validate(read(p.schema, value)); err != nil {
				return fmt.Errorf("the %s parameter %s: %w", p.in, p.name, err)
			}
		}
	}
	switch {
	case len(body) == 0 && op.request.needsBody:
		return fmt.Errorf("the body is missing")
	case len(body) == 0 || op.request.body == nil:
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("cannot read the body: %w", err)
	}
	return op.request.body.Validate(value)
}

// of finds the parameter in a request. An empty one counts as none.
func (p parameter) of(req *http.Request, op *operation) (value string, given bool) {
	switch p.in {
	case "query":
		value = req.URL.Query().Get(p.name)
	case "header":
		value = req.Header.Get(p.name)
	case "path":
		segments := strings.Split(req.URL.Path, "/")
		for n, segment := range op.segments {
			if segment == "{"+p.name+"}" {
				value = segments[n]
			}
		}
	}
	return value, value != ""
}

// read gives the value that a text stands for where a schema wants something
// else than text.
func read(schema *jsonschema.Schema, text string) any {
	if schema.Types == nil || schema.Types.IsEmpty() {
		return text
	}
	for _, kind := range schema.Types.ToStrings() {
		switch kind {
		case "boolean":
			if v, err := strconv.ParseBool(text); err == nil {
				return v
			}
		case "integer", "number":
			if v, err := strconv.ParseFloat(text, 64); err == nil {
				return v
			}
		}
	}
	return text
}

// sent gives the body that a request will send, when it can be read beforehand.
func sent(req *http.Request) []byte {
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer func() { _ = body.Close() }()
	data, _ := io.ReadAll(body) // what cannot be read is told by the call itself
	return data
}
