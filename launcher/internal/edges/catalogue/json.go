package catalogue

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// exponent matches numbers of JSON, and of YAML 1.2, that the parser takes for strings
// without quotes.
var exponent = regexp.MustCompile(`^-?(0|[1-9][0-9]*)[eE][-+]?[0-9]+$`)

// json gives a value of YAML for [json.Marshal]. It is nil after a fault.
func (v value) json() any {
	if text, ok := stringOf(v.node); ok {
		if v.node.GetToken().Type == token.StringType && exponent.MatchString(text) {
			return json.Number(text)
		}
		return text
	}
	switch n := v.node.(type) {
	case *ast.BoolNode:
		return n.Value
	case *ast.NullNode:
		return nil
	case *ast.IntegerNode, *ast.FloatNode:
		return v.number(n.GetToken().Value)
	case *ast.SequenceNode:
		all := []any{}
		v.items(func(_ int, item value) { all = append(all, item.json()) })
		return all
	case *ast.MappingNode:
		all := map[string]any{}
		v.entries(func(key, of value) { all[key.key] = of.json() })
		return all
	}
	v.mustBe("a value that JSON has")
	return nil
}

// number keeps the digits of a number that JSON writes in the same way.
func (v value) number(text string) any {
	if json.Valid([]byte(text)) {
		return json.Number(text)
	}
	switch n := v.node.(type) {
	case *ast.IntegerNode:
		return json.Number(fmt.Sprint(n.Value))
	case *ast.FloatNode:
		return n.Value
	}
	return nil
}
