package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
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

// Document gives the OpenAPI document of the API as YAML.
func Document() ([]byte, error) {
	d, err := New(Options{Logger: slog.New(slog.DiscardHandler)}).documents()
	return d.yaml, err
}

//go:embed docs.html
var docsPage string

var docsTemplate = template.Must(template.New("docs").Funcs(template.FuncMap{
	"shape":    shape,
	"required": func(s *huma.Schema, field string) bool { return slices.Contains(s.Required, field) },
}).Parse(docsPage))

func render(document *huma.OpenAPI) (documents, error) {
	var d documents
	var err error
	if d.json, err = json.MarshalIndent(document, "", "  "); err != nil {
		return d, fmt.Errorf("cannot write the OpenAPI document: %w", err)
	}
	if d.yaml, err = document.YAML(); err != nil {
		return d, fmt.Errorf("cannot write the OpenAPI document: %w", err)
	}
	var page bytes.Buffer
	if err := docsTemplate.Execute(&page, map[string]any{"Document": document, "Operations": operations(document)}); err != nil {
		return d, fmt.Errorf("cannot write the page of documentation: %w", err)
	}
	d.html = page.Bytes()
	return d, nil
}

// operations are the document's, in the order of the table.
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

// shape says what a schema describes, with links to those that have a name.
func shape(s *huma.Schema) template.HTML {
	escape := template.HTMLEscapeString
	var text string
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		name := escape(path.Base(s.Ref))
		text = fmt.Sprintf(`<a href="#schema-%s">%s</a>`, name, name)
	case s.OneOf != nil:
		var of []string
		for _, one := range s.OneOf {
			of = append(of, string(shape(one)))
		}
		text = strings.Join(of, " or ")
	case s.Type == huma.TypeArray:
		text = "list of " + string(shape(s.Items))
	case s.Type == huma.TypeObject:
		values, _ := s.AdditionalProperties.(*huma.Schema)
		text = "map of " + string(shape(values))
	case s.Type != "":
		text = escape(s.Type)
	default:
		text = escape(s.Description)
	}
	return template.HTML(text) //nolint:gosec // every part of it is escaped above
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
