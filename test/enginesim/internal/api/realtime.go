package api

import (
	"bufio"
	"crypto/sha1" // what RFC 6455 asks for
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// realtimePath is vLLM's WebSocket route. vLLM has it for models of speech; the
// stand-in always has it, so that upgrades through a proxy can be tried, and
// sends back what it gets.
const realtimePath = "/v1/realtime"

func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func (s *Server) realtime(w http.ResponseWriter, r *http.Request) {
	// As above.
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, err := hijack(w)
	if err != nil {
		s.opts.Log.Error("api_router.py:40", "%v", err)
		return
	}
	// The other end closes too.
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\nserver: uvicorn\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	if err == nil {
		err = echo(conn)
	}
	if err != nil {
		s.opts.Log.Info("api_router.py:40", "the WebSocket ended: %v", err)
	}
}

// Opcodes of RFC 6455, section 5.2.
const (
	opClose = 0x8
	opPing  = 0x9
	opPong  = 0xA
)

// echo sends each frame back until the client closes.
func echo(conn net.Conn) error {
	in := bufio.NewReader(conn)
	for {
		head, payload, err := readFrame(in)
		if err != nil {
			return err
		}
		if head&0xF == opPing {
			head = head&^0xF | opPong
		}
		if err := writeFrame(conn, head, payload); err != nil {
			return err
		}
		if head&0xF == opClose {
			return nil
		}
	}
}

// maxFrame is the longest frame taken, in bytes.
const maxFrame = 1 << 20

func readFrame(in io.Reader) (head byte, payload []byte, err error) {
	var start [2]byte
	if _, err := io.ReadFull(in, start[:]); err != nil {
		return 0, nil, fmt.Errorf("cannot read a frame: %w", err)
	}
	size, err := frameSize(in, start[1]&0x7F)
	if err != nil {
		return 0, nil, err
	}
	var mask [4]byte
	if start[1]&0x80 != 0 {
		if _, err := io.ReadFull(in, mask[:]); err != nil {
			return 0, nil, fmt.Errorf("cannot read a frame's mask: %w", err)
		}
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(in, payload); err != nil {
		return 0, nil, fmt.Errorf("cannot read a frame: %w", err)
	}
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return start[0], payload, nil
}

// frameSize reads the length that follows a short length of 126 or 127.
func frameSize(in io.Reader, short byte) (uint64, error) {
	size := uint64(short)
	var err error
	switch short {
	case 126:
		var n uint16
		err = binary.Read(in, binary.BigEndian, &n)
		size = uint64(n)
	case 127:
		err = binary.Read(in, binary.BigEndian, &size)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read a frame's length: %w", err)
	}
	if size > maxFrame {
		return 0, fmt.Errorf("a frame of %d bytes is too long", size)
	}
	return size, nil
}

func writeFrame(out io.Writer, head byte, payload []byte) error {
	frame := []byte{head}
	switch n := len(payload); {
	case n < 126:
		frame = append(frame, byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(n))
	}
	if _, err := out.Write(append(frame, payload...)); err != nil {
		return fmt.Errorf("cannot write a frame: %w", err)
	}
	return nil
}
