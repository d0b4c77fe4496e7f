package requester

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// What the engine's own metrics may cost.
const (
	scrapeTime = 2 * time.Second
	scrapeSize = 16 << 20
	scrapeLine = 16 << 10
)

var (
	outcomes   = []outcome{outcomeFinished, outcomeReset, outcomeIdle, outcomeCut, outcomeUnreachable, outcomeRefused, outcomeUnserved}
	directions = []string{up: "up", down: "down"}
)

// tally counts for the metrics.
type tally struct {
	connections [7]atomic.Int64 // by place in outcomes
	bytes       [2]atomic.Int64 // by direction
}

func (t *tally) ended(how outcome) {
	for i, o := range outcomes {
		if o == how {
			t.connections[i].Add(1)
		}
	}
}

func (t *tally) moved(d direction, n int64) { t.bytes[d].Add(n) }

// getMetrics answers the engine's metrics, while somebody is bound that has any,
// and the requester's own behind them, which also say whether those are whole.
// They are few: a library for them would cost more memory than the rest of the
// program.
func (r *Requester) getMetrics(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	status := r.status()
	whole := -1
	if status.MetricsURL != "" {
		whole = 1
		if err := relayMetrics(request.Context(), w, status.MetricsURL); err != nil {
			r.opts.Logger.Warn("the engine's metrics are incomplete", "url", status.MetricsURL, "error", err)
			whole = 0
		}
	}
	r.writeMetrics(w, status, whole)
}

// relayMetrics writes the lines that the engine answers, whole ones only.
func relayMetrics(ctx context.Context, w io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	// Nothing is kept open: the next scrape may be of another binding.
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, ReadBufferSize: 4 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the engine answered %s", answer.Status)
	}
	return copyLines(w, answer.Body, scrapeSize)
}

func copyLines(w io.Writer, from io.Reader, most int) error {
	lines := bufio.NewReaderSize(from, scrapeLine)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("a line of the metrics is longer than %d bytes", scrapeLine)
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case err != nil:
			line = append(line, '\n')
		}
		if most -= len(line); most < 0 {
			return fmt.Errorf("the metrics are longer than %d bytes", scrapeSize)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
}

func (r *Requester) writeMetrics(to io.Writer, status requesterapi.Proxy, whole int) {
	w := bufio.NewWriter(to)
	head := func(name, kind, help string) {
		_, _ = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	gauge := func(name, help string, value int) {
		head(name, "gauge", help)
		_, _ = fmt.Fprintf(w, "%s %d\n", name, value)
	}
	head("hotseat_requester_build_info", "gauge", "Always 1; the version is in the label.")
	_, _ = fmt.Fprintf(w, "hotseat_requester_build_info{version=%q} 1\n", r.opts.Version)
	gauge("hotseat_requester_bound", "1 while a controller has bound this requester, also while it is being unbound.", number(status.State != requesterapi.StateUnbound))
	gauge("hotseat_requester_ready", "1 while /ready reports ready.", number(status.Ready))
	gauge("hotseat_requester_connections", "Open client connections, without those that are held.", status.Connections)
	gauge("hotseat_requester_connections_held", "Client connections that wait until this requester is bound.", status.Held)
	head("hotseat_requester_connections_total", "counter", "Client connections that have ended, by outcome.")
	for i, o := range outcomes {
		_, _ = fmt.Fprintf(w, "hotseat_requester_connections_total{outcome=%q} %d\n", o, r.tally.connections[i].Load())
	}
	head("hotseat_requester_bytes_total", "counter", "Bytes forwarded up to the inference server and down to clients.")
	for d, name := range directions {
		_, _ = fmt.Fprintf(w, "hotseat_requester_bytes_total{direction=%q} %d\n", name, r.tally.bytes[d].Load())
	}
	if whole >= 0 {
		gauge("hotseat_requester_engine_metrics_whole", "1 if the engine's own metrics above are complete.", whole)
	}
	_ = w.Flush() // the client is gone when this fails
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
