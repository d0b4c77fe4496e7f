package catalogue

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Place is where something stands in a file. Line and Column begin with 1; both are 0 for
// the file as a whole.
type Place struct {
	File         string
	Line, Column int
}

func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Fault is one mistake: where it is, what is wrong and what would be right.
type Fault struct {
	Place
	Problem string
}

func (f Fault) String() string { return f.Place.String() + ": " + f.Problem }

// Faults are all mistakes of a catalogue, in the order of its files.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

// decoder collects the faults of all files.
type decoder struct {
	machine Machine
	file    string           // the one that it reads
	named   map[string]claim // the names of the commands
	faults  Faults
	places  map[string]Place // of what was read, by its path, such as models[0].name
}

// value is a node of a file, with its path, and with its key for messages.
type value struct {
	d    *decoder
	node ast.Node
	path string
	key  string
}

func (d *decoder) value(node ast.Node, path, key string) value {
	d.places[path] = d.placeOf(node)
	return value{d, node, path, key}
}

func (d *decoder) failAt(at Place, format string, args ...any) {
	d.faults = append(d.faults, Fault{at, strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")})
}

func (v value) fail(format string, args ...any) {
	v.d.failAt(v.d.placeOf(v.node), format, args...)
}

func (d *decoder) placeOf(node ast.Node) Place {
	switch n := node.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 { // its own token is the first colon
			return d.placeOf(n.Values[0].Key)
		}
	case *ast.LiteralNode:
		if n.Start != nil {
			return Place{d.file, n.Start.Position.Line, n.Start.Position.Column}
		}
	}
	at := node.GetToken()
	if at == nil {
		return Place{File: d.file}
	}
	return Place{d.file, at.Position.Line, at.Position.Column}
}

// field is a key of a mapping, and what reads its value.
type field struct {
	key  string
	read func(value)
}

// object reads a mapping whose keys are known. It calls missing for each required key that
// is absent.
func (v value) object(fields []field, required ...string) {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.key
	}
	seen := map[string]bool{}
	if !v.entries(func(key value, of value) {
		seen[key.key] = true
		i := slices.Index(known, key.key)
		if i < 0 {
			key.fail("there is no field %q%s", key.key, suggest(key.key, known))
			return
		}
		fields[i].read(of)
	}) {
		return
	}
	for _, key := range required {
		if !seen[key] {
			v.fail("%s lacks the field %s", v.key, key)
		}
	}
}

// suggest says which of the known keys was meant, or else which there are.
func suggest(key string, known []string) string {
	if meant := cmp.Or(config.NearestKey(key, known), config.Nearest(key, known)); meant != "" {
		return ": did you mean " + meant + "?"
	}
	return "; there are " + strings.Join(known, ", ")
}

// entries reads a mapping of any keys. It reports whether the value is one.
func (v value) entries(each func(key, of value)) bool {
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		v.mustBe("a mapping")
		return false
	}
	first := map[string]Place{}
	for _, entry := range m.Values {
		name := keyText(entry.Key)
		key := value{v.d, entry.Key, v.path, name}
		at := v.d.placeOf(entry.Key)
		if before, twice := first[name]; twice {
			key.fail("%s is there a second time, after line %d: keep one", name, before.Line)
			continue
		}
		first[name] = at
		each(key, v.d.value(entry.Value, v.path+"."+name, name))
	}
	return true
}

func keyText(key ast.MapKeyNode) string {
	if s, ok := key.(*ast.StringNode); ok {
		return s.Value
	}
	return key.GetToken().Value
}

// items reads a list.
func (v value) items(each func(i int, item value)) {
	list, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.mustBe("a list")
		return
	}
	for i, node := range list.Values {
		each(i, v.d.value(node, fmt.Sprintf("%s[%d]", v.path, i), "each of "+v.key))
	}
}

func (v value) mustBe(want string) {
	got := kindOf(v.node)
	if got == "" {
		v.fail("%s is written with an anchor, an alias or a tag: write the value itself", v.key)
		return
	}
	v.fail("%s must be %s, not %s", v.key, want, got)
}

// kindOf names the type of a node; empty for one that stands for another.
func kindOf(node ast.Node) string {
	switch node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return "a string"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode:
		return "a mapping"
	case *ast.NullNode:
		return "nothing"
	}
	return ""
}

// text reads a string. It is empty after a fault.
func (v value) text(want string) string {
	text, ok := stringOf(v.node)
	if got := kindOf(v.node); got == "a number" || got == "true or false" {
		v.fail("%s must be %s, not %s: put it in quotes", v.key, want, got)
		return ""
	}
	if !ok {
		v.mustBe(want)
		return ""
	}
	if text == "" {
		v.fail("%s must be %s, not empty", v.key, want)
	}
	return text
}

func stringOf(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// scalar reads a string, or a number or a bool by its text.
func (v value) scalar(want string) string {
	switch v.node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return v.node.GetToken().Value
	}
	text, ok := stringOf(v.node)
	if !ok {
		v.mustBe(want)
	}
	return text
}

func (v value) boolean(p *bool) {
	b, ok := v.node.(*ast.BoolNode)
	if !ok {
		v.mustBe("true or false")
		return
	}
	*p = b.Value
}

func (v value) integer(p *int, least int) {
	if _, ok := v.node.(*ast.IntegerNode); !ok {
		if _, fraction := v.node.(*ast.FloatNode); fraction {
			v.fail("%s must be a whole number, not %s", v.key, v.node.GetToken().Value)
			return
		}
		v.mustBe("a whole number")
		return
	}
	text := v.node.GetToken().Value
	n, err := strconv.Atoi(text)
	if err != nil {
		v.fail("%s must be a whole number, not %s", v.key, text)
		return
	}
	if n < least {
		v.fail("%s must be at least %d, not %d", v.key, least, n)
		return
	}
	*p = n
}

const wantDuration = `a duration such as "1m30s" or a number of seconds`

// duration reads a span of time; 0 is as good as none.
func (v value) duration() time.Duration {
	switch v.node.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
	default:
		v.mustBe(wantDuration)
		return 0
	}
	d, err := launcherapi.ParseDuration(v.scalar(wantDuration))
	if err != nil {
		v.fail("%s: %v", v.key, err)
		return 0
	}
	return d.D()
}

// bytes reads a number of bytes above 0; 0 after a fault.
func (v value) bytes() int64 {
	const want = `a number of bytes, or one with a unit such as "6GiB"`
	text := v.scalar(want)
	if text == "" {
		return 0
	}
	n, err := config.ParseBytes(text)
	switch {
	case err != nil:
		v.fail("%s %v", v.key, err)
		return 0
	case n <= 0:
		v.fail("%s must be above 0, not %s", v.key, text)
		return 0
	}
	return n
}

func (v value) choice(of ...string) string {
	want := "one of " + strings.Join(of, ", ")
	text := v.text(want)
	if text == "" || slices.Contains(of, text) {
		return text
	}
	meant := ""
	if near := config.Nearest(text, of); near != "" {
		meant = ": did you mean " + near + "?"
	}
	v.fail("%s must be %s, not %q%s", v.key, want, text, meant)
	return ""
}
