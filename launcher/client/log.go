package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// LogPart is a part of a log.
type LogPart struct {
	Bytes []byte
	First int64 // offset of the part's first byte
	Total int64 // offset of the log's end
}

// DropNoter is a writer that is called for bytes of a log that the launcher has dropped, to
// keep its logs within log_max_bytes. Other writers get a line of text in their place.
type DropNoter interface {
	io.Writer
	// Dropped is called in place of the bytes from the offset from up to the offset to.
	Dropped(from, to int64) error
}

// dropped notifies a writer of dropped bytes.
func dropped(w io.Writer, from, to int64) error {
	if noter, ok := w.(DropNoter); ok {
		return noter.Dropped(from, to)
	}
	_, err := io.WriteString(w, DroppedText(from, to))
	return err
}

// DroppedText returns the line that replaces dropped bytes of a log.
func DroppedText(from, to int64) string {
	return fmt.Sprintf("[hotseat: %d bytes of the log are missing here: the launcher has dropped them, see log_max_bytes]\n", to-from)
}

// Log reads the log of an instance from the offset first to the offset last, inclusive. If last
// is negative, it reads at most 1 MiB. If the launcher has dropped the bytes at first, the part
// begins later. If the log has no byte of the range, the error has the code range, and only
// Total of the part is set.
func (c *Client) Log(ctx context.Context, id string, first, last int64) (LogPart, error) {
	end := ""
	if last >= 0 {
		end = strconv.FormatInt(last, 10)
	}
	resp, err := c.send(ctx, call{
		method: http.MethodGet, path: instancePath(id, "/log"),
		header: map[string]string{"Range": fmt.Sprintf("bytes=%d-%s", first, end)},
	})
	if refused, ok := errors.AsType[*rangeError](err); ok {
		return LogPart{Total: refused.total}, refused.error
	}
	if err != nil {
		return LogPart{}, err
	}
	defer resp.Body.Close()
	content, err := readAll(resp.Body, maxAnswer)
	if err != nil {
		return LogPart{}, fmt.Errorf("cannot read the log of %s: %w", id, err)
	}
	begins, total, err := parseContentRange(resp.Header.Get("Content-Range"))
	if err != nil {
		return LogPart{}, fmt.Errorf("cannot read the log of %s: %w", id, err)
	}
	return LogPart{Bytes: content, First: begins, Total: total}, nil
}

// parseContentRange returns the offset of the first byte, and the length of the log.
func parseContentRange(header string) (first, total int64, err error) {
	var last int64
	if _, err := fmt.Sscanf(header, "bytes %d-%d/%d", &first, &last, &total); err != nil {
		return 0, 0, fmt.Errorf("cannot read its Content-Range %q: %w", header, err)
	}
	return first, total, nil
}

// parseLength returns the length of a log from an answer without bytes, such as "bytes */14".
func parseLength(header string) (total int64, err error) {
	_, err = fmt.Sscanf(header, "bytes */%d", &total)
	return total, err
}

// mostBreaks is how often CopyLog requests a part again if bytes were dropped while the
// launcher sent it.
const mostBreaks = 10

// CopyLog writes the log of an instance to w, from an offset to the end. For dropped bytes, see
// [DropNoter].
func (c *Client) CopyLog(ctx context.Context, id string, from int64, w io.Writer) error {
	for breaks := 0; ; {
		part, err := c.Log(ctx, id, from, -1)
		if launcher.CodeOf(err) == launcherapi.CodeRange {
			return nil
		}
		if breaks++; breaks < mostBreaks && errors.Is(err, io.ErrUnexpectedEOF) {
			continue
		}
		if err != nil {
			return err
		}
		breaks = 0
		if part.First > from {
			err = dropped(w, from, part.First)
		}
		if err == nil {
			_, err = w.Write(part.Bytes)
		}
		if err != nil {
			return fmt.Errorf("cannot pass on the log of %s: %w", id, err)
		}
		from = part.First + int64(len(part.Bytes))
		if from >= part.Total {
			return nil
		}
	}
}

// FollowLog writes the log of an instance to w, from an offset on and as the log grows. It
// returns when no process writes to the log any more. If the connection breaks, FollowLog
// connects again and continues at the same offset. For dropped bytes, see [DropNoter].
// FollowLog ends early with an error if ctx ends, if w fails, if the launcher refuses, for
// example because it has forgotten the instance, or if it cannot be reached (see [Options]).
func (c *Client) FollowLog(ctx context.Context, id string, from int64, w io.Writer) error {
	out := &counter{to: w, at: from}
	for retry := c.retries(); ; {
		before := out.at
		err := c.followOnce(ctx, retry, id, out)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("cannot follow the log of %s: %w", id, context.Cause(ctx))
		case out.err != nil:
			return fmt.Errorf("cannot pass on the log of %s: %w", id, out.err)
		case !temporary(err):
			return err
		}
		if out.at > before {
			retry.reset()
		}
		c.log.Debug("the log broke off", "instance", id, "at", out.at, "error", err)
		if err := retry.again(ctx, err); err != nil {
			return fmt.Errorf("cannot follow the log of %s: %w", id, err)
		}
	}
}

func (c *Client) followOnce(ctx context.Context, retry *retries, id string, out *counter) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(silences*c.heartbeat, func() { cancel(errSilent) })
	defer silence.Stop()
	resp, err := c.send(ctx, call{
		method: http.MethodGet, path: instancePath(id, "/log"), query: url.Values{"follow": {"true"}},
		header: map[string]string{"Range": fmt.Sprintf("bytes=%d-", out.at)},
	})
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer resp.Body.Close()
	silence.Stop() // a quiet log is no error
	retry.connected()
	if first, ok := followedFrom(resp.Header.Get("Content-Range")); ok && first > out.at {
		if out.err = dropped(out.to, out.at, first); out.err != nil {
			return out.err
		}
		out.at = first
	}
	_, err = io.Copy(out, resp.Body)
	return err
}

// followedFrom returns the offset from which a log is followed. If all bytes of the log were
// dropped, that is its length.
func followedFrom(contentRange string) (first int64, ok bool) {
	first, _, err := parseContentRange(contentRange)
	if err != nil {
		first, err = parseLength(contentRange)
	}
	return first, err == nil
}

// counter is a writer that counts its offset in the log, and remembers an error of the writer
// behind it.
type counter struct {
	to  io.Writer
	at  int64
	err error
}

func (o *counter) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	o.at += int64(n)
	o.err = errors.Join(o.err, err)
	return n, err
}
