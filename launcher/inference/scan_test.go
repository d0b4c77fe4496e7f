package inference

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkReadModel reads a body of 1 MB as a front door does: the model stands early, and the rest is read ahead.
func BenchmarkReadModel(b *testing.B) {
	body := `{"model":"m","prompt":"hello","user":"` + strings.Repeat("x", 1<<20) + `"}`
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		read, err := ReadModel(r, Limits{JSON: 32 << 20, Memory: NewMemory(64 << 20)})
		if err == nil {
			_, err = read.Ahead(8 << 20)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, read)
		}
		if err != nil {
			b.Fatal(err)
		}
		_ = read.Close()
	}
}

func TestPlainEndsAtTheFirstByteThatMeansSomething(t *testing.T) {
	slow := func(data []byte) (n int) {
		for n < len(data) && data[n] != '"' && data[n] != '\\' && data[n] >= ' ' {
			n++
		}
		return n
	}
	for c := range 256 { // at each place among the eight, with neighbours that a borrow could reach
		for at := range 20 {
			for _, fill := range []byte{'x', 0x21, 0x23, 0x20, 0x5b, 0x5d, 0x80, 0xff, 0x7f} {
				data := bytes.Repeat([]byte{fill}, 20)
				data[at] = byte(c)
				require.Equal(t, slow(data), plain(data), "%q", data)
			}
		}
	}
}
