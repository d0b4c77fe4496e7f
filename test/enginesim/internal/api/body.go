package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
)

// decode reads a JSON body into v. It answers itself, and says false, when
// there is something wrong with the body; the words are those of FastAPI,
// pydantic and Python's json.
func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		invalid(w, "", "Unsupported Media Type: Only 'application/json' is allowed")
		return false
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return false // the client went away
	}
	if text := strings.TrimSpace(string(data)); text == "" || text == "null" {
		missing(w, "body", "None")
		return false
	}
	err = json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return true
	case errors.As(err, &wrong):
		field := embedded.Replace(wrong.Field)
		loc := strings.TrimSuffix("body."+field, ".")
		kind, msg := typeMessage(wrong, field)
		invalid(w, loc, "{'type': '%s', 'loc': '%s', 'msg': '%s', 'input': '%s'}", kind, loc, msg, input(data, field))
	default:
		message, at := pythonJSON(data, err)
		loc := fmt.Sprintf("body.%d", at)
		invalid(w, loc, "{'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': %s}}", loc, quote(message))
	}
	return false
}

// embedded takes the names of embedded structs out of the path of a field.
var embedded = strings.NewReplacer("chatRequest.", "", "params.", "")

// missing answers for a field that must be there.
func missing(w http.ResponseWriter, loc, input string) {
	invalid(w, loc, "{'type': 'missing', 'loc': '%s', 'msg': 'Field required', 'input': '%s'}", loc, input)
}

// typeMessage gives pydantic's name and words for a value of the wrong type.
func typeMessage(wrong *json.UnmarshalTypeError, field string) (kind, msg string) {
	switch wrong.Type.Kind() {
	case reflect.Int, reflect.Int64:
		if strings.HasPrefix(wrong.Value, "number") {
			return "int_from_float", "Input should be a valid integer, got a number with a fractional part"
		}
		return "int_parsing", "Input should be a valid integer, unable to parse string as an integer"
	case reflect.Float64:
		return "float_parsing", "Input should be a valid number, unable to parse string as a number"
	case reflect.Bool:
		return "bool_parsing", "Input should be a valid boolean, unable to interpret input"
	case reflect.Slice:
		return "list_type", "Input should be a valid list"
	case reflect.Struct:
		if field == "" {
			return "model_attributes_type", "Input should be a valid dictionary or object to extract fields from"
		}
		return "dict_type", "Input should be a valid dictionary"
	default:
		return "string_type", "Input should be a valid string"
	}
}

// input shows a field's value; containers by their size alone.
func input(data []byte, field string) string {
	var value any
	if json.Unmarshal(data, &value) != nil {
		return ""
	}
	if object, ok := value.(map[string]any); ok && field != "" {
		value = object[field]
	}
	switch v := value.(type) {
	case map[string]any:
		return fmt.Sprintf("<dict of %d items>", len(v))
	case []any:
		return fmt.Sprintf("<list of %d items>", len(v))
	}
	return fmt.Sprint(value)
}

// pythonJSON says what Python's json would of err, and at which character.
func pythonJSON(data []byte, err error) (message string, at int) {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err.Error(), 0
	}
	text := strings.TrimRight(string(data), " \t\r\n")
	words := []struct{ in, out string }{
		{"beginning of object key", "Expecting property name enclosed in double quotes"},
		{"after object key:value", "Expecting ',' delimiter"},
		{"after array element", "Expecting ',' delimiter"},
		{"after object key", "Expecting ':' delimiter"},
		{"after top-level value", "Extra data"},
		{"in string", "Invalid control character at"},
	}
	for _, w := range words {
		if strings.Contains(syntax.Error(), w.in) {
			return w.out, int(syntax.Offset) - 1
		}
	}
	if strings.Contains(syntax.Error(), "unexpected end") {
		switch text[len(text)-1] {
		case '{':
			return "Expecting property name enclosed in double quotes", len(text)
		case '[', ':', ',':
			return "Expecting value", len(text)
		}
		return "Expecting ',' delimiter", len(text)
	}
	return "Expecting value", int(syntax.Offset) - 1
}

// pythonPlace writes a position as Python's json does.
func pythonPlace(data []byte, at int) string {
	before := string(data[:min(at, len(data))])
	line := strings.Count(before, "\n") + 1
	column := len(before) - strings.LastIndex(before, "\n")
	return fmt.Sprintf("line %d column %d (char %d)", line, column, at)
}

// quote writes a string as Python's repr does.
func quote(s string) string {
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `\'`) + "'"
}
