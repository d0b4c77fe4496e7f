package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"time"
)

// A journal is lines of JSON, each of the form
//
//	{"crc":"1b2c3d4e","header":{"version":1,"boot_id":"…","at":"…"}}
//	{"crc":"5e6f7a8b","record":…}
//
// so that it can be read with cat and jq. The checksum (CRC-32C, eight
// lower-case hexadecimal digits) is of all that stands between the comma after
// it and the line's end, both left out. The first line is a header; another
// one follows where the machine was started anew.

// version is that of the format above. Whatever a later version changes, its
// first line stays of this form, so that an older program can tell.
const version = 1

const (
	payloadFrom = len(`{"crc":"00000000",`)
	headerKey   = `"header":`
	recordKey   = `"record":`
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type header struct {
	Version int       `json:"version"`
	BootID  string    `json:"boot_id"`
	At      time.Time `json:"at"`
}

// encode gives the line of a header or a record, its end included.
func encode(key string, value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	line := make([]byte, payloadFrom, payloadFrom+len(key)+len(raw)+2)
	line = append(line, key...)
	line = append(line, raw...)
	line = append(line, '}')
	copy(line, prefix(line[payloadFrom:]))
	return append(line, '\n'), nil
}

// prefix gives the beginning of the line that holds the payload, payloadFrom
// bytes long.
func prefix(payload []byte) []byte {
	return fmt.Appendf(nil, `{"crc":"%08x",`, crc32.Checksum(payload, castagnoli))
}

// decode takes a line, without its end, apart. ok is false when it is not what
// encode made.
func decode(line []byte) (key string, value json.RawMessage, ok bool) {
	if len(line) < payloadFrom {
		return "", nil, false
	}
	payload := line[payloadFrom:]
	if !bytes.HasPrefix(line, prefix(payload)) {
		return "", nil, false
	}
	for _, key := range []string{headerKey, recordKey} {
		value, found := bytes.CutPrefix(payload, []byte(key))
		value, closed := bytes.CutSuffix(value, []byte("}"))
		if found && closed && json.Valid(value) {
			return key, value, true
		}
	}
	return "", nil, false
}

// contents is what a journal file was found to hold.
type contents struct {
	records []json.RawMessage
	last    header // the last header; zero when there is none
	good    int    // the whole lines, damaged ones among them, are that many bytes from the start
	broken  *BrokenError
}

// parse reads a whole journal file. What is damaged costs the line that it
// stands in: the next one is read again. A last line without its end is what a
// crash in the middle of a write leaves, and is left out without a word.
// readable, which may be nil, says what is wrong with a record; one that it
// refuses counts as damaged. The error is a *VersionError.
func parse(data []byte, readable func(json.RawMessage) error) (contents, error) {
	var c contents
	for c.good < len(data) {
		end := bytes.IndexByte(data[c.good:], '\n') + 1
		line := data[c.good:]
		if end > 0 {
			line = line[:end]
		}
		why, err := c.take(line, readable)
		if err != nil {
			return contents{}, err
		}
		torn := end == 0 && why == reasonNothing && c.good > 0
		if why != "" && !torn {
			c.damaged(why)
		}
		if end == 0 {
			break
		}
		c.good += end
	}
	return c, nil
}

// Reasons why a line is damaged.
const (
	reasonNothing = "the checksum or the form of a line is wrong"
	reasonEnd     = "the end of a line is wrong"
	reasonFirst   = "the first line is not a header"
	reasonHeader  = "a header has the wrong form"
)

// damaged notes damage in the line at c.good.
func (c *contents) damaged(why string) {
	if c.broken == nil {
		c.broken = &BrokenError{Offset: int64(c.good), Reason: why}
	}
	c.broken.Lines++
}

// take reads a line, its end included, and says what is wrong with it. In a
// damaged one it looks for lines whose end is what was damaged.
func (c *contents) take(line []byte, readable func(json.RawMessage) error) (why string, err error) {
	if key, value, ok := decode(bytes.TrimSuffix(line, []byte("\n"))); ok && bytes.HasSuffix(line, []byte("\n")) {
		return c.put(key, value, readable)
	}
	why = reasonNothing
	for _, part := range parts(line) {
		key, value, ok := decode(part[:len(part)-1])
		if !ok {
			continue
		}
		if _, err := c.put(key, value, readable); err != nil {
			return "", err
		}
		why = reasonEnd
	}
	return why, nil
}

// parts splits a damaged line before everything that looks like the beginning
// of a line. None of them is empty.
func parts(line []byte) [][]byte {
	begin := []byte(`{"crc":"`)
	var out [][]byte
	for len(line) > 0 {
		next := bytes.Index(line[1:], begin) + 1
		if next == 0 {
			next = len(line)
		}
		out = append(out, line[:next])
		line = line[next:]
	}
	return out
}

// put adds a header or a record, and says what is wrong with it.
func (c *contents) put(key string, value json.RawMessage, readable func(json.RawMessage) error) (why string, err error) {
	if key == headerKey {
		var h header
		if err := json.Unmarshal(value, &h); err != nil {
			return reasonHeader, nil //nolint:nilerr // damage is no error: the other lines are read
		}
		if h.Version > version {
			return "", &VersionError{Found: h.Version, Known: version}
		}
		c.last = h
		return "", nil
	}
	if readable != nil {
		if err := readable(value); err != nil {
			return err.Error(), nil //nolint:nilerr // the same
		}
	}
	c.records = append(c.records, bytes.Clone(value))
	if c.good == 0 {
		return reasonFirst, nil
	}
	return "", nil
}
