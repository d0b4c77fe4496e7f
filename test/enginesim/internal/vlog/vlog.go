// Package vlog writes log lines of the shape that vLLM 0.30 writes.
package vlog

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Logger writes the lines of one process.
type Logger struct {
	mu     sync.Mutex
	out    io.Writer
	prefix string
}

// New makes a logger for the process role (APIServer, EngineCore, Worker…).
func New(out io.Writer, role string) *Logger {
	return &Logger{out: out, prefix: fmt.Sprintf("(%s pid=%d) ", role, os.Getpid())}
}

// Info writes an INFO line. at is the place that vLLM names, such as
// "launcher.py:70".
func (l *Logger) Info(at, format string, args ...any) { l.line("INFO", at, format, args...) }

// Warn writes a WARNING line.
func (l *Logger) Warn(at, format string, args ...any) { l.line("WARNING", at, format, args...) }

// Error writes an ERROR line.
func (l *Logger) Error(at, format string, args ...any) { l.line("ERROR", at, format, args...) }

// Plain writes text as a line with the process's prefix alone, as uvicorn's
// lines and tracebacks come.
func (l *Logger) Plain(format string, args ...any) {
	l.write("", fmt.Sprintf(format, args...))
}

// Raw writes bytes as they are.
func (l *Logger) Raw(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A log that cannot be written has nowhere to say so.
	_, _ = l.out.Write(b)
}

func (l *Logger) line(level, at, format string, args ...any) {
	head := level + " " + time.Now().Format("01-02 15:04:05") + " [" + at + "] "
	l.write(head, fmt.Sprintf(format, args...))
}

// write repeats prefix and head before every line of text, as vLLM does.
func (l *Logger) write(head, text string) {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(l.prefix)
		b.WriteString(head)
		b.WriteString(line)
		b.WriteByte('\n')
	}
	l.Raw([]byte(b.String()))
}
