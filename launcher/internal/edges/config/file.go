package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// CatalogueKeys are the sections of the file that package catalogue reads.
var CatalogueKeys = []string{"commands", "models", "selectors", "profiles"}

// fileReader goes through one configuration file.
type fileReader struct {
	name     string
	values   map[string]value
	keys     []string // of all settings, in the order of the table
	lines    map[string]int
	assigned []assignment
}

// parseFile reads the settings of a file: one YAML document, a mapping. It checks
// names and types, and leaves the texts as they are. It skips the sections that package
// catalogue reads.
func parseFile(name string, data []byte, settings []setting) ([]assignment, error) {
	r := fileReader{name: name, values: map[string]value{}, lines: map[string]int{}}
	for _, s := range settings {
		r.values[s.key] = s.value
		r.keys = append(r.keys, s.key)
	}
	body, err := Document(data)
	if malformed := (*YAMLError)(nil); errors.As(err, &malformed) && malformed.Line > 0 {
		return nil, r.fail(malformed.Line, "%s", malformed.Problem)
	}
	if err != nil {
		return nil, &Error{name, err.Error()}
	}
	if body == nil {
		return nil, nil
	}
	if err := r.mapping(body, ""); err != nil {
		return nil, err
	}
	return r.assigned, nil
}

// YAMLError says why a file is no YAML document that can be read. Line and Column are 0
// if the mistake has no place.
type YAMLError struct {
	Line, Column int
	Problem      string
}

func (e *YAMLError) Error() string { return e.Problem }

func malformedAt(at *token.Token, problem string) error {
	return &YAMLError{at.Position.Line, at.Position.Column, problem}
}

// Document reads a file that has one YAML document at most. The node is nil if the file
// has none. Keys may be there twice: the caller looks for duplicates, to name both lines.
// The error is a *YAMLError.
func Document(data []byte) (ast.Node, error) {
	data = bytes.TrimPrefix(data, []byte("\uFEFF")) // a byte order mark, which some editors write
	if !utf8.Valid(data) {
		return nil, &YAMLError{Problem: "this is no YAML: it is not UTF-8"}
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, &YAMLError{Problem: "this is no YAML: it holds a zero byte"}
	}
	tokens := lexer.Tokenize(string(data))
	if at := tooDeep(tokens); at != nil {
		return nil, malformedAt(at, fmt.Sprintf("lists and mappings are nested more than %d deep: no setting needs that", deepest))
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if syntax := (*yaml.SyntaxError)(nil); errors.As(err, &syntax) && syntax.Token != nil {
		return nil, malformedAt(syntax.Token, "this is no YAML: "+syntax.Message)
	}
	if err != nil {
		return nil, &YAMLError{Problem: "this is no YAML: " + err.Error()}
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, malformedAt(doc.Body.GetToken(), "the file has a second document: keep one")
		}
		body = doc.Body
	}
	return body, nil
}

// deepest bounds the depth of lists and mappings within a line; deep nesting over
// several lines takes a longer indentation each. The parser keeps the whole path to
// each of them, and would need gigabytes for a depth of some ten thousand.
const deepest = 100

// tooDeep gives the first token that is nested deeper; nil when there is none.
func tooDeep(tokens token.Tokens) *token.Token {
	line, brackets, entries := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, entries = t.Position.Line, 0
		}
		if t.Type == token.SequenceEntryType {
			entries++
		}
		if t.Type == token.SequenceStartType || t.Type == token.MappingStartType {
			brackets++
		}
		if t.Type == token.SequenceEndType || t.Type == token.MappingEndType {
			brackets--
		}
		if brackets+entries > deepest {
			return t
		}
	}
	return nil
}

func (r *fileReader) fail(line int, format string, args ...any) error {
	return &Error{fmt.Sprintf("%s:%d", r.name, line), fmt.Sprintf(format, args...)}
}

func lineOf(node ast.Node) int { return node.GetToken().Position.Line }

// mapping reads the settings of a section; the file itself is the section "".
func (r *fileReader) mapping(node ast.Node, section string) error {
	m, ok := node.(*ast.MappingNode)
	if !ok {
		what := "the file"
		if section != "" {
			what = strings.TrimSuffix(section, ".")
		}
		return r.fail(lineOf(node), "%s must be a mapping of settings, as in \"listen: 127.0.0.1:8001\"", what)
	}
	for _, entry := range m.Values {
		if err := r.entry(entry, section); err != nil {
			return err
		}
	}
	return nil
}

func (r *fileReader) entry(entry *ast.MappingValueNode, section string) error {
	line := lineOf(entry.Key)
	key := entry.Key.String()
	if s, ok := entry.Key.(*ast.StringNode); ok {
		key = s.Value
	}
	key = section + key
	if first, twice := r.lines[key]; twice {
		return r.fail(line, "%s is set a second time, after line %d: keep one", key, first)
	}
	r.lines[key] = line
	if section == "" && slices.Contains(CatalogueKeys, key) {
		return nil
	}
	if r.isSection(key + ".") {
		return r.mapping(entry.Value, key+".")
	}
	v, known := r.values[key]
	if !known {
		return r.fail(line, "there is no setting %q%s", key, r.suggest(key))
	}
	texts, err := r.texts(key, v, entry.Value)
	if err != nil {
		return err
	}
	r.assigned = append(r.assigned, assignment{key, texts, fmt.Sprintf("%s:%d: %s", r.name, line, key)})
	return nil
}

func (r *fileReader) isSection(prefix string) bool {
	return slices.ContainsFunc(r.keys, func(key string) bool { return strings.HasPrefix(key, prefix) })
}

// texts gives the texts of a node whose type the value takes.
func (r *fileReader) texts(key string, v value, node ast.Node) ([]string, error) {
	got, text := scalarOf(node)
	if got&v.file == 0 {
		if got == yamlOther {
			return nil, r.fail(lineOf(node), "%s is written with an anchor, an alias or a tag: write the value itself", key)
		}
		return nil, r.fail(lineOf(node), "%s must be %s, not %s", key, v.want, got)
	}
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return []string{text}, nil
	}
	var texts []string
	for _, item := range list.Values {
		got, text := scalarOf(item)
		if got != yamlString && (got != yamlNumber || v.file&yamlNumber == 0) {
			return nil, r.fail(lineOf(item), "%s must be %s", key, v.want)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

func scalarOf(node ast.Node) (yamlType, string) {
	switch n := node.(type) {
	case *ast.StringNode:
		return yamlString, n.Value
	case *ast.LiteralNode:
		return yamlString, n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return yamlNumber, node.GetToken().Value
	case *ast.BoolNode:
		return yamlBool, node.GetToken().Value
	case *ast.SequenceNode:
		return yamlList, ""
	case *ast.MappingNode:
		return yamlMapping, ""
	case *ast.NullNode:
		return yamlNull, ""
	default:
		return yamlOther, ""
	}
}
