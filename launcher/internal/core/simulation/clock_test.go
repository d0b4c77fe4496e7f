package simulation

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
)

// bootClock is the kernel's, which nobody sets.
func (w *world) bootClock() statedir.Clock {
	return statedir.Clock{Boot: bootID, Since: func() time.Duration { return time.Hour + time.Since(w.began) }}
}

// wallClock is what the wall clock shows. Within one life nothing depends on it: Go reckons
// durations without it.
func (w *world) wallClock() time.Time { return time.Now().Add(w.ahead) }

// setClock has somebody set the wall clock, before the launcher starts again.
func (w *world) setClock(by time.Duration) {
	w.ahead += by
	w.jump += by
}

// shiftRecords moves the wall times in all records, as if the wall clock had been set since:
// simulated time itself cannot be set.
func (w *world) shiftRecords() {
	if w.jump == 0 {
		return
	}
	by := -w.jump
	w.jump = 0
	for _, kind := range []string{"instances", "swaps"} {
		files, err := filepath.Glob(filepath.Join(w.dir, kind, "*.*"))
		if err != nil {
			panic(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				panic(err)
			}
			if shifted, ok := shiftTimes(text, by); ok {
				if err := os.WriteFile(file, shifted, 0o600); err != nil {
					panic(err)
				}
			}
		}
	}
}

// shiftTimes moves all times of a JSON text. false: it is damaged.
func shiftTimes(text []byte, by time.Duration) ([]byte, bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var all any
	if decoder.Decode(&all) != nil {
		return nil, false
	}
	shifted, err := json.Marshal(shiftIn(all, by))
	if err != nil {
		panic(err)
	}
	return shifted, true
}

func shiftIn(value any, by time.Duration) any {
	switch v := value.(type) {
	case map[string]any:
		for name, one := range v {
			v[name] = shiftIn(one, by)
		}
	case []any:
		for n, one := range v {
			v[n] = shiftIn(one, by)
		}
	case string:
		if t, err := time.Parse(time.RFC3339Nano, v); err == nil && !t.IsZero() {
			return t.Add(by).Format(time.RFC3339Nano)
		}
	}
	return value
}
