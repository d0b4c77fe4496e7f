package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/yaml"
	"github.com/go-chi/chi/v5"
)

const (
	openapiPath = "/openapi"
	docsPath    = "/docs"
)

// documents are the renderings of the OpenAPI document.
type documents struct {
	json, yaml, html []byte
}

// Document gives the OpenAPI document of the API as YAML, for launchers that ask
// for a token and for those that do not.
func Document() ([]byte, error) {
	d, err := newServer(Options{Logger: slog.New(slog.DiscardHandler)}, tokenOrNone).documents()
	return d.yaml, err
}

// How clients prove who they are, as the document says it.
var (
	tokenOrNone = []map[string][]string{{"token": {}}, {}}
	tokenOnly   = []map[string][]string{{"token": {}}}
)

// security says which proofs a launcher with these options asks for.
func security(opts Options) []map[string][]string {
	if opts.Access == nil {
		return nil
	}
	return tokenOnly
}

func render(document *huma.OpenAPI) (documents, error) {
	d := documents{html: page(document)}
	plain, err := json.Marshal(document)
	var tree object
	if err == nil {
		err = json.Unmarshal(plain, &tree)
	}
	if err == nil {
		allowNulls(tree)
		leaveOut(tree, "patternDescription") // an extension for huma's messages, which OpenAPI does not know
		d.json, err = json.MarshalIndent(tree, "", "  ")
	}
	var text bytes.Buffer
	if err == nil {
		err = yaml.Convert(&text, bytes.NewReader(d.json))
	}
	if err != nil {
		return d, fmt.Errorf("cannot write the OpenAPI document: %w", err)
	}
	d.yaml = text.Bytes()
	return d, nil
}

// operations are the operations of the document, in the order of the table.
func operations(document *huma.OpenAPI) []*huma.Operation {
	var all []*huma.Operation
	for _, r := range routes() {
		item := document.Paths[r.path]
		all = append(all, map[string]*huma.Operation{
			http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post, http.MethodDelete: item.Delete,
		}[r.method])
	}
	return all
}

// mountDocuments serves the documents.
func (s *Server) mountDocuments(r chi.Router) {
	serve := func(path, contentType string, pick func(documents) []byte) {
		r.Get(path, func(w http.ResponseWriter, _ *http.Request) {
			all, err := s.documents()
			if err != nil {
				problemOf(err).write(w)
				return
			}
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
			_, _ = w.Write(pick(all)) // the client may be gone
		})
	}
	serve(openapiPath+".json", "application/openapi+json", func(d documents) []byte { return d.json })
	serve(openapiPath+".yaml", "application/openapi+yaml", func(d documents) []byte { return d.yaml })
	serve(docsPath, "text/html; charset=utf-8", func(d documents) []byte { return d.html })
}
