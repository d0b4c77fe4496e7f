package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// LogPart is a part of a log.
type LogPart struct {
	Bytes []byte
	First int64 // offset of the part's first byte
	Total int64 // length of the whole log
}

// Log reads the log of an instance from the offset first: to the offset last,
// inclusive, or, when last is negative, at most 1 MiB. Where the log has no byte at
// first, the error has code range.
func (c *Client) Log(ctx context.Context, id string, first, last int64) (LogPart, error) {
	end := ""
	if last >= 0 {
		end = strconv.FormatInt(last, 10)
	}
	resp, err := c.send(ctx, call{
		method: http.MethodGet, path: instancePath(id, "/log"),
		header: map[string]string{"Range": fmt.Sprintf("bytes=%d-%s", first, end)},
	})
	if err != nil {
		return LogPart{}, err
	}
	defer resp.Body.Close()
	content, err := readAll(resp.Body, maxAnswer)
	if err != nil {
		return LogPart{}, fmt.Errorf("cannot read the log of %s: %w", id, err)
	}
	_, total, _ := strings.Cut(resp.Header.Get("Content-Range"), "/")
	n, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		return LogPart{}, fmt.Errorf("cannot read the log of %s: its length %q: %w", id, total, err)
	}
	return LogPart{Bytes: content, First: first, Total: n}, nil
}

// CopyLog writes the log of an instance to w, from an offset to the end.
func (c *Client) CopyLog(ctx context.Context, id string, from int64, w io.Writer) error {
	for {
		part, err := c.Log(ctx, id, from, -1)
		if launcher.CodeOf(err) == launcherapi.CodeRange {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(part.Bytes); err != nil {
			return fmt.Errorf("cannot pass on the log of %s: %w", id, err)
		}
		from += int64(len(part.Bytes))
		if from >= part.Total {
			return nil
		}
	}
}

// FollowLog writes the log of an instance to w, from an offset on and as it grows,
// and returns when nobody writes to the log any more. A connection that breaks is
// made again, and goes on where the last one ended. FollowLog ends early with the
// error of ctx or of w, with that of a launcher that refuses, for example since it
// has forgotten the instance, or that of one that cannot be reached, see [Options].
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
	silence.Stop() // a log may be quiet
	retry.connected()
	_, err = io.Copy(out, resp.Body)
	return err
}

// counter is a writer that knows its offset in the log, and whether the writer
// behind it failed.
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
