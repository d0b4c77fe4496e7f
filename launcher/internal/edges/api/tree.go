package api

import (
	"path"
	"slices"
)

// object is a JSON object of the document.
type object = map[string]any

// allowNulls has the schemas of requests say what the server does with null: a
// member that may be left out may be null, which means the same. The schemas by
// which the server itself checks a body need not say so.
func allowNulls(document object) {
	schemas := in(document, "components", "schemas")
	seen := map[string]bool{}
	var allow func(schema object)
	allow = func(schema object) {
		if ref, ok := schema["$ref"].(string); ok {
			if name := path.Base(ref); !seen[name] {
				seen[name] = true
				allow(in(schemas, name))
			}
			return
		}
		required, _ := schema["required"].([]any)
		members := in(schema, "properties")
		for name := range members {
			member := in(members, name)
			allow(member)
			if !slices.Contains(required, any(name)) {
				members[name] = orNull(member)
			}
		}
	}
	for where := range in(document, "paths") {
		item := in(document, "paths", where)
		for method := range item {
			content := in(item, method, "requestBody", "content")
			for kind := range content {
				allow(in(content, kind, "schema"))
			}
		}
	}
}

// orNull is a schema that takes null as well.
func orNull(schema object) object {
	null := object{"type": "null"}
	switch {
	case schema["$ref"] != nil:
		either := object{"oneOf": []any{object{"$ref": schema["$ref"]}, null}}
		if text, ok := schema["description"]; ok {
			either["description"] = text
		}
		return either
	case schema["oneOf"] != nil:
		schema["oneOf"] = append(schema["oneOf"].([]any), null)
	default:
		schema["type"] = []any{schema["type"], "null"}
		if values, ok := schema["enum"].([]any); ok {
			schema["enum"] = append(values, nil)
		}
	}
	return schema
}

// leaveOut takes a member out of all objects of a tree.
func leaveOut(from any, name string) {
	switch v := from.(type) {
	case object:
		delete(v, name)
		for _, member := range v {
			leaveOut(member, name)
		}
	case []any:
		for _, element := range v {
			leaveOut(element, name)
		}
	}
}

// in follows the names down to an object; nil when there is none.
func in(from object, names ...string) object {
	for _, name := range names {
		from, _ = from[name].(object)
	}
	return from
}
