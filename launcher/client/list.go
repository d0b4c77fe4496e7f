package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// list makes a request whose answer has a list in a field. It reads the elements one by one and
// counts their memory, so that a long answer cannot exhaust memory.
func list[L, T any](ctx context.Context, c *Client, what call, field string, elements func(*L) *[]T) (out L, err error) {
	resp, err := c.send(ctx, what)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	in := &counted{from: resp.Body}
	r := listReader{in: in, json: json.NewDecoder(in)}
	rest := map[string]json.RawMessage{}
	err = r.read(func(key string) error {
		if key != field {
			rest[key], err = r.value()
			return err
		}
		into := elements(&out)
		return r.elements(func(text json.RawMessage) error {
			var one T
			if err := json.Unmarshal(text, &one); err != nil {
				return err
			}
			*into = append(*into, one)
			return nil
		})
	})
	if err == nil {
		err = readFields(rest, &out)
	}
	if err != nil {
		var none L
		return none, fmt.Errorf("cannot read the answer to %s %s: %w", what.method, what.path, err)
	}
	if into := elements(&out); *into == nil {
		*into = []T{}
	}
	return out, nil
}

// readFields reads the fields of an answer other than its list.
func readFields(fields map[string]json.RawMessage, into any) error {
	text, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// counted limits the bytes of one value.
type counted struct {
	from io.Reader
	left int
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("a part of it %w", &tooLongError{maxObject})
	}
	n, err := c.from.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// listReader reads a JSON object that has a list.
type listReader struct {
	in   *counted
	json *json.Decoder
	cost int // of everything that was read
}

// read reads an object, and calls value for each key.
func (r *listReader) read(value func(key string) error) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	for r.more() {
		key, err := r.json.Token()
		if err != nil {
			return err
		}
		if err := value(fmt.Sprint(key)); err != nil {
			return err
		}
	}
	return r.expect('}')
}

// elements reads a list, or null.
func (r *listReader) elements(each func(json.RawMessage) error) error {
	r.in.left = maxObject
	begin, err := r.json.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('[') {
		return errors.New("it has no list where one belongs")
	}
	for r.more() {
		text, err := r.value()
		if err != nil {
			return err
		}
		if err := each(text); err != nil {
			return err
		}
	}
	return r.expect(']')
}

// more reports whether there is another element. An error is found by the next read.
func (r *listReader) more() bool {
	r.in.left = maxObject
	return r.json.More()
}

func (r *listReader) expect(what json.Delim) error {
	r.in.left = maxObject
	token, err := r.json.Token()
	if err != nil {
		return err
	}
	if token != what {
		return fmt.Errorf("it has %v in place of %v", token, what)
	}
	return nil
}

// value reads the text of a value, and adds its cost.
func (r *listReader) value() (text json.RawMessage, err error) {
	r.in.left = maxObject
	if err := r.json.Decode(&text); err != nil {
		return nil, err
	}
	cost, err := costWithin("a part of it", text)
	if err != nil {
		return nil, err
	}
	if r.cost += keptBytes + max(0, cost-shortBytes); r.cost > maxAnswer {
		return nil, fmt.Errorf("it %w", &tooLongError{maxAnswer})
	}
	return text, nil
}
