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
	good    int    // how many bytes from the start are whole lines
}

// parse reads a whole journal file. A last line without its end is what a
// crash in the middle of a write leaves, and is left out without a word. The
// error is a *BrokenError, with all that was good before it in the contents,
// or a *VersionError.
func parse(data []byte) (contents, error) {
	var c contents
	broken := func(reason string) (contents, error) {
		return c, &BrokenError{Offset: int64(c.good), Reason: reason}
	}
	for {
		line, _, whole := bytes.Cut(data[c.good:], []byte("\n"))
		if !whole && c.good == 0 && len(data) > 0 {
			return broken("there is no header") // a new file is put in place with one
		}
		if !whole {
			return c, nil
		}
		key, value, ok := decode(line)
		if !ok {
			return broken("the checksum or the form of a line is wrong")
		}
		if c.good == 0 && key != headerKey {
			return broken("the first line is not a header")
		}
		if key == headerKey {
			var h header
			if err := json.Unmarshal(value, &h); err != nil {
				return broken("a header has the wrong form")
			}
			if h.Version > version {
				return contents{}, &VersionError{Found: h.Version, Known: version}
			}
			c.last = h
		} else {
			c.records = append(c.records, bytes.Clone(value))
		}
		c.good += len(line) + 1
	}
}
