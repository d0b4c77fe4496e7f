package inference

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// Rewrite changes the model of a JSON object, if it has one, and its parameters. All other
// bytes stay as they are.
func Rewrite(body []byte, model string, p Params) ([]byte, error) {
	var members []member
	s := scanner{done: func(m member, _ []byte) error {
		members = append(members, m)
		return nil
	}}
	if err := s.feed(body); err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	set := maps.Clone(p.Set)
	if set == nil {
		set = map[string]json.RawMessage{}
	}
	set["model"] = quote(model)
	given := map[string]bool{"model": true} // a model is changed, and never added
	out := bytes.NewBuffer(make([]byte, 0, len(body)+256))
	last := int64(bytes.IndexByte(body, '{') + 1) // what was read last of body
	out.Write(body[:last])
	written := 0
	for i, m := range members {
		value, change := set[m.key]
		given[m.key] = given[m.key] || change
		before := last
		last = m.valEnd
		if !change && slices.Contains(p.Strip, m.key) {
			continue
		}
		if i > 0 && written == 0 { // what stood before it began with a comma
			before = m.keyStart
		}
		out.Write(body[before:m.valStart])
		if !change {
			value = body[m.valStart:m.valEnd]
		}
		out.Write(value)
		written++
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if given[name] {
			continue
		}
		if written > 0 {
			out.WriteByte(',')
		}
		out.Write(quote(name))
		out.WriteByte(':')
		out.Write(set[name])
		written++
	}
	out.Write(body[last:])
	return out.Bytes(), nil
}

// quote writes a string as JSON.
func quote(text string) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can always be encoded
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
