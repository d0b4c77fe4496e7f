package inference

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
)

// scanner reads one JSON object as its bytes arrive, in any portions. It accepts what
// [json.Valid] accepts, and tells the members of the object.
type scanner struct {
	state   scanState
	nesting []byte // the open brackets, '{' and '['
	literal string // what is left of true, false or null
	digits  int    // of \u that are left
	offset  int64  // of the next byte

	inKey   bool   // the current string is a key
	current member // of the object
	count   int
	capture []byte                           // the current key or value, as it is written, up to mostCaptured; of a list or object the bracket
	done    func(m member, raw []byte) error // is called for each member
}

// member is one key of the object, and its value, by offsets: of the first byte, and of
// the byte behind the last one.
type member struct {
	key                                string
	keyStart, keyEnd, valStart, valEnd int64
}

const (
	// mostCaptured bounds the part of a key or value that is kept. A model's name of that
	// length is none.
	mostCaptured = 2048
	mostMembers  = 10000
	deepest      = 10000 // as encoding/json has it
)

type scanState int

const (
	beforeObject scanState = iota
	beforeValue
	beforeFirstItem // of an array: a value or ]
	beforeFirstKey  // of an object: a key or }
	beforeKey
	beforeColon
	afterValue
	inString
	afterBackslash
	inUnicode
	inLiteral
	afterMinus
	afterZero
	inInteger
	afterPoint
	inFraction
	afterE
	afterESign
	inExponent
	atEnd
)

// errNoJSON is the cause of every error of syntax.
var errNoJSON = errors.New("the body is no JSON object")

func (s *scanner) syntax(c byte, want string) error {
	return fmt.Errorf("%w: %q at byte %d, where %s is expected", errNoJSON, c, s.offset, want)
}

// feed takes the next bytes. After an error the scanner is of no use.
func (s *scanner) feed(data []byte) error {
	for i := 0; i < len(data); i++ {
		// Most bytes of a long body are in strings, below the first level.
		if s.state == inString && !s.capturing() {
			n := plain(data[i:])
			i, s.offset = i+n, s.offset+int64(n)
			if i == len(data) {
				return nil
			}
		}
		if err := s.next(data[i]); err != nil {
			return err
		}
		s.offset++
	}
	return nil
}

// plain returns how many bytes stand before the first quote, backslash or control character. It looks
// at eight bytes at once: a byte of 0 in x sets the high bit of that byte of (x - ones) &^ x & highs.
func plain(data []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(data)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(data[n:])
		quote, backslash := x^('"'*ones), x^('\\'*ones)
		found := ((quote-ones)&^quote | (backslash-ones)&^backslash | (x-' '*ones)&^x) & highs
		if found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(data) && data[n] != '"' && data[n] != '\\' && data[n] >= ' ' {
		n++
	}
	return n
}

// end says whether the object is whole.
func (s *scanner) end() error {
	if s.state == atEnd {
		return nil
	}
	return fmt.Errorf("%w: it ends at byte %d, before its end", errNoJSON, s.offset)
}

// capturing reports whether the current text is a key of the object, or a value that is
// kept.
func (s *scanner) capturing() bool {
	return len(s.nesting) == 1 && len(s.capture) < mostCaptured
}

func (s *scanner) next(c byte) error {
	switch s.state {
	case inString, afterBackslash, inUnicode:
		return s.nextInString(c)
	case inLiteral, afterMinus, afterPoint, afterE, afterESign:
		return s.nextInside(c)
	case afterZero, inInteger, inFraction, inExponent:
		return s.nextInNumber(c)
	default:
		if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			return nil
		}
		return s.nextOutside(c)
	}
}

// nextOutside takes a byte between keys and values.
func (s *scanner) nextOutside(c byte) error {
	switch s.state {
	case beforeObject:
		if c != '{' {
			return s.syntax(c, "{")
		}
		return s.open(c, beforeFirstKey)
	case beforeFirstItem:
		if c == ']' {
			return s.closeBracket()
		}
		return s.value(c)
	case beforeValue:
		return s.value(c)
	case beforeFirstKey, beforeKey:
		if c == '}' && s.state == beforeFirstKey {
			return s.closeBracket()
		}
		if c != '"' {
			return s.syntax(c, "a key")
		}
		if len(s.nesting) == 1 {
			s.current = member{keyStart: s.offset}
		}
		s.inKey = true
		s.begin(c, inString)
		return nil
	case beforeColon:
		if c != ':' {
			return s.syntax(c, "a colon")
		}
		s.state = beforeValue
		return nil
	case afterValue:
		return s.afterValue(c)
	default: // atEnd
		return s.syntax(c, "the end")
	}
}

func (s *scanner) afterValue(c byte) error {
	inObject := s.nesting[len(s.nesting)-1] == '{'
	switch {
	case c == ',' && inObject:
		s.state = beforeKey
		return nil
	case c == ',':
		s.state = beforeValue
		return nil
	case c == '}' && inObject, c == ']' && !inObject:
		return s.closeBracket()
	}
	return s.syntax(c, "a comma or a closing bracket")
}

func (s *scanner) open(c byte, state scanState) error {
	if len(s.nesting) == deepest {
		return fmt.Errorf("%w: it is nested more than %d deep", errNoJSON, deepest)
	}
	s.nesting = append(s.nesting, c)
	s.state = state
	return nil
}

func (s *scanner) closeBracket() error {
	s.nesting = s.nesting[:len(s.nesting)-1]
	if len(s.nesting) == 0 {
		s.state = atEnd
		return nil
	}
	return s.ended(s.offset + 1)
}

// begin begins a key or a value that is no list or object.
func (s *scanner) begin(c byte, state scanState) {
	s.state = state
	if len(s.nesting) == 1 {
		s.capture = append(s.capture[:0], c)
	}
}

func (s *scanner) value(c byte) error {
	if len(s.nesting) == 1 {
		s.current.valStart = s.offset
		s.capture = append(s.capture[:0], c)
	}
	switch {
	case c == '{':
		return s.open(c, beforeFirstKey)
	case c == '[':
		return s.open(c, beforeFirstItem)
	case c == '"':
		s.begin(c, inString)
	case c == '-':
		s.begin(c, afterMinus)
	case c == '0':
		s.begin(c, afterZero)
	case c >= '1' && c <= '9':
		s.begin(c, inInteger)
	case c == 't', c == 'f', c == 'n':
		s.literal = map[byte]string{'t': "true", 'f': "false", 'n': "null"}[c][1:]
		s.begin(c, inLiteral)
	default:
		return s.syntax(c, "a value")
	}
	return nil
}

func (s *scanner) keep(c byte) {
	if s.capturing() {
		s.capture = append(s.capture, c)
	}
}

func (s *scanner) nextInString(c byte) error {
	s.keep(c)
	switch {
	case s.state == afterBackslash && c == 'u':
		s.state, s.digits = inUnicode, 4
	case s.state == afterBackslash:
		switch c {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			s.state = inString
		default:
			return s.syntax(c, "an escaped character")
		}
	case s.state == inUnicode:
		if !isHex(c) {
			return s.syntax(c, "a hexadecimal digit")
		}
		if s.digits--; s.digits == 0 {
			s.state = inString
		}
	case c == '\\':
		s.state = afterBackslash
	case c == '"':
		return s.ended(s.offset + 1)
	case c < ' ':
		return s.syntax(c, "an escaped character")
	}
	return nil
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// nextInside takes a byte of a literal or a number that cannot end there.
func (s *scanner) nextInside(c byte) error {
	s.keep(c)
	digit := c >= '0' && c <= '9'
	switch {
	case s.state == inLiteral:
		if c != s.literal[0] {
			return s.syntax(c, "true, false or null")
		}
		if s.literal = s.literal[1:]; s.literal == "" {
			return s.ended(s.offset + 1)
		}
	case s.state == afterMinus && c == '0':
		s.state = afterZero
	case s.state == afterMinus && digit:
		s.state = inInteger
	case s.state == afterPoint && digit:
		s.state = inFraction
	case s.state == afterE && (c == '+' || c == '-'):
		s.state = afterESign
	case (s.state == afterE || s.state == afterESign) && digit:
		s.state = inExponent
	default:
		return s.syntax(c, "a digit")
	}
	return nil
}

// nextInNumber takes the byte after one with which a number can end.
func (s *scanner) nextInNumber(c byte) error {
	switch {
	case c >= '0' && c <= '9' && s.state != afterZero:
	case c == '.' && (s.state == afterZero || s.state == inInteger):
		s.state = afterPoint
	case (c == 'e' || c == 'E') && s.state != inExponent:
		s.state = afterE
	default:
		if err := s.ended(s.offset); err != nil {
			return err
		}
		return s.next(c)
	}
	s.keep(c)
	return nil
}

// ended is called at the end of each key and value; behind is the offset of the byte
// behind it.
func (s *scanner) ended(behind int64) error {
	atTop := len(s.nesting) == 1
	if s.inKey {
		s.inKey, s.state = false, beforeColon
		if atTop {
			s.current.keyEnd = behind
			s.current.key = s.captured()
		}
		return nil
	}
	s.state = afterValue
	if !atTop {
		return nil
	}
	s.current.valEnd = behind
	if s.count++; s.count > mostMembers {
		return fmt.Errorf("%w: it has more than %d members", errNoJSON, mostMembers)
	}
	return s.done(s.current, s.capture)
}

// captured is the text of a key. A key that is cut off stays as it is written, and is like
// no other.
func (s *scanner) captured() string {
	text := ""
	if err := json.Unmarshal(s.capture, &text); err != nil {
		return string(s.capture)
	}
	return text
}
