package importswap

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// macro is a text that stands for a value.
type macro struct {
	name  string
	value any
}

// macrosOf reads a mapping of macros. A macro may contain those before it.
func macrosOf(value any) []macro {
	var all []macro
	for _, item := range mapping(value) {
		all = append(all, macro{fmt.Sprint(item.Key), substitute(item.Value, all)})
	}
	return all
}

// substitute replaces the macros in every text of a value. A text that is a macro alone
// becomes its value, with its type.
func substitute(value any, macros []macro) any {
	switch v := value.(type) {
	case string:
		for _, m := range macros {
			if v == "${"+m.name+"}" {
				return m.value
			}
			v = strings.ReplaceAll(v, "${"+m.name+"}", fmt.Sprint(m.value))
		}
		return v
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = substitute(v[i], macros)
		}
		return all
	case yaml.MapSlice:
		all := make(yaml.MapSlice, len(v))
		for i, item := range v {
			all[i] = yaml.MapItem{Key: substitute(item.Key, macros), Value: substitute(item.Value, macros)}
		}
		return all
	}
	return value
}

// checkMacros notes macros that are left in a text.
func (im *importer) checkMacros(where, text string) {
	if _, rest, found := strings.Cut(text, "${"); found {
		name, _, _ := strings.Cut(rest, "}")
		im.note(where, "${%s} is still there: write its value", name)
	}
}

// environment replaces ${env.X} in a text by the variable's value. A variable that is not
// set stays.
func (im *importer) environment(text string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${env.")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, _ := strings.Cut(rest, "}")
		if value, set := im.env(name); set {
			out.WriteString(value)
		} else {
			out.WriteString("${env." + name + "}")
		}
		text = after
	}
}
