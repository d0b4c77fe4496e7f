package openapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Transport checks every answer that comes through base as it is read, and
// tells report what is wrong with it: a stream line by line, any other answer
// when it was read to its end. Answers that were not read so far are not
// checked. It also tells of a request that was answered with success although
// the document does not allow it. report may be called from several goroutines
// at once.
func (d *Document) Transport(base http.RoundTripper, report func(error)) http.RoundTripper {
	return &transport{document: d, base: base, report: report}
}

type transport struct {
	document *Document
	base     http.RoundTripper
	report   func(error)
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	complain := func(err error) { t.report(fmt.Errorf("%s %s: %w", req.Method, req.URL, err)) }
	if resp.StatusCode < http.StatusBadRequest {
		body := sent(req)
		if err := t.document.Request(req, body); err != nil {
			complain(fmt.Errorf("status %d to a request that the document does not allow: %w\n%.2000s", resp.StatusCode, err, body))
		}
	}
	if req.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent {
		return resp, nil
	}
	resp.Request = req
	kind, schema, err := t.document.schemaOf(resp)
	if err != nil {
		complain(err)
		return resp, nil
	}
	if schema == nil {
		return resp, nil
	}
	check := func(document []byte) {
		if err := validate(kind, schema, document); err != nil {
			complain(fmt.Errorf("status %d: %w\n%.2000s", resp.StatusCode, err, document))
		}
	}
	resp.Body = &checked{ReadCloser: resp.Body, kind: kind, check: check}
	return resp, nil
}

// validate holds one document against its schema.
func validate(kind string, schema *jsonschema.Schema, document []byte) error {
	var value any = string(document)
	if strings.HasSuffix(kind, "json") {
		var err error
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(document)); err != nil {
			return fmt.Errorf("cannot read the answer: %w", err)
		}
	}
	return schema.Validate(value)
}

// checked is a body that is looked at while it is read.
type checked struct {
	io.ReadCloser
	kind  string
	check func([]byte)
	seen  []byte
	ended bool
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.seen = append(c.seen, p[:n]...)
	if c.kind == "application/x-ndjson" {
		for {
			line, rest, whole := bytes.Cut(c.seen, []byte("\n"))
			if !whole {
				break
			}
			c.check(line)
			c.seen = rest
		}
		return n, err
	}
	if err == io.EOF && !c.ended {
		c.ended = true
		c.check(c.seen)
	}
	return n, err
}
