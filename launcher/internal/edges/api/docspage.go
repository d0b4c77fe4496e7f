package api

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.css
var docsStyle string

// page renders the document for people. It is written out by hand because
// html/template, which finds methods by their name, makes the linker keep every
// exported method of the program: 3 MB that an idle launcher would hold.
func page(document *huma.OpenAPI) []byte {
	p := &pageWriter{}
	title := markup(`%s <small>%s</small>`, document.Info.Title, document.Info.Version)
	p.put("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"+
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"+
		"<title>%s %s</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>%s</h1>\n",
		document.Info.Title, document.Info.Version, safe(docsStyle), title)
	p.paragraph(document.Info.Description)
	p.put("<p>The same as a document: <a href=\"openapi.json\">openapi.json</a>, <a href=\"openapi.yaml\">openapi.yaml</a>.</p>\n")
	all := operations(document)
	for _, tag := range document.Tags {
		p.put("<h2>%s</h2>\n", tag.Name)
		p.paragraph(tag.Description)
		for _, o := range all {
			if o.Tags[0] == tag.Name {
				p.operation(o)
			}
		}
	}
	p.put("<h2>schemas</h2>\n")
	schemas := document.Components.Schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		p.schema(name, schemas[name])
	}
	p.put("<p>* is always present, or required.</p>\n</body>\n</html>\n")
	return p.Bytes()
}

// safe is markup that needs no escaping.
type safe string

// markup fills in a format; arguments that are not safe are escaped.
func markup(format string, args ...any) safe {
	for n, a := range args {
		if _, ok := a.(safe); !ok {
			args[n] = html.EscapeString(fmt.Sprint(a))
		}
	}
	return safe(fmt.Sprintf(format, args...))
}

type pageWriter struct{ bytes.Buffer }

func (p *pageWriter) put(format string, args ...any) { p.WriteString(string(markup(format, args...))) }

func (p *pageWriter) paragraph(text string) {
	if text != "" {
		p.put("<p>%s</p>\n", text)
	}
}

func (p *pageWriter) operation(o *huma.Operation) {
	p.put("<details id=\"%s\">\n<summary><span class=\"method\">%s</span> <span class=\"path\">%s</span> · %s</summary>\n",
		o.OperationID, o.Method, o.Path, o.Summary)
	p.paragraph(o.Description)
	if len(o.Parameters) > 0 {
		p.put("<table><tr><th>parameter</th><th>in</th><th>type</th><th></th></tr>\n")
		for _, param := range o.Parameters {
			p.put("<tr><td><code>%s</code>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
				param.Name, star(param.Required), param.In, shape(param.Schema), param.Description)
		}
		p.put("</table>\n")
	}
	if o.RequestBody != nil {
		p.put("<table><tr><th>body</th><th></th></tr>\n")
		for _, kind := range slices.Sorted(maps.Keys(o.RequestBody.Content)) {
			p.put("<tr><td><code>%s</code></td><td>%s</td></tr>\n", kind, shape(o.RequestBody.Content[kind].Schema))
		}
		p.put("</table>\n")
	}
	p.put("<table><tr><th>answer</th><th></th><th></th></tr>\n")
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		answer := o.Responses[status]
		p.put("<tr><td><code>%s</code></td><td>%s</td><td>", status, answer.Description)
		for _, kind := range slices.Sorted(maps.Keys(answer.Content)) {
			p.put("<code>%s</code> %s<br>", kind, shape(answer.Content[kind].Schema))
		}
		p.put("</td></tr>\n")
	}
	p.put("</table>\n</details>\n")
}

func (p *pageWriter) schema(name string, s *huma.Schema) {
	p.put("<details id=\"schema-%s\" open>\n<summary><b>%s</b></summary>\n", name, name)
	p.paragraph(s.Description)
	p.put("<table><tr><th>field</th><th>type</th><th></th></tr>\n")
	for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
		of := s.Properties[field]
		p.put("<tr><td><code>%s</code>%s</td><td>%s</td><td>%s%s</td></tr>\n",
			field, star(slices.Contains(s.Required, field)), shape(of), of.Description, choices(of.Enum))
	}
	p.put("</table>\n</details>\n")
}

func star(required bool) string {
	if required {
		return " *"
	}
	return ""
}

func choices(values []any) safe {
	if len(values) == 0 {
		return ""
	}
	var of []string
	for _, v := range values {
		of = append(of, string(markup("<code>%s</code>", v)))
	}
	return safe(" One of " + strings.Join(of, ", ") + ".")
}

// shape says what a schema describes, with links to schemas that have a name.
func shape(s *huma.Schema) safe {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		name := path.Base(s.Ref)
		return markup(`<a href="#schema-%s">%s</a>`, name, name)
	case s.OneOf != nil:
		var of []string
		for _, one := range s.OneOf {
			of = append(of, string(shape(one)))
		}
		return safe(strings.Join(of, " or "))
	case s.Type == huma.TypeArray:
		return "list of " + shape(s.Items)
	case s.Type == huma.TypeObject:
		values, _ := s.AdditionalProperties.(*huma.Schema)
		return "map of " + shape(values)
	case s.Type != "":
		return markup("%s", s.Type)
	default:
		return markup("%s", s.Description)
	}
}
