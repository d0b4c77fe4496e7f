package preload

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// times are how long preloaders took to load, of this pool and of earlier ones that
// had the same folder.
type times struct {
	Last    time.Duration `json:"last_ns"` // of the last load; 0: none has loaded yet
	Longest time.Duration `json:"longest_ns"`
}

// timesName is the file that keeps the times.
const timesName = "times.json"

// readTimes reads the times that an earlier pool has kept; zero without a file that
// can be read.
func readTimes(dir string) (t times) {
	data, err := os.ReadFile(filepath.Join(dir, timesName))
	if err != nil || json.Unmarshal(data, &t) != nil || t.Last < 0 || t.Longest < t.Last {
		return times{}
	}
	return t
}

// noteTime notes how long a preloader took to load.
func (p *Pool) noteTime(l *preloader, took time.Duration) {
	p.mu.Lock()
	p.times = times{Last: took, Longest: max(took, p.times.Longest)}
	t := p.times
	p.mu.Unlock()
	if err := t.write(filepath.Join(p.opts.Dir, timesName), l.name); err != nil {
		p.opts.Logger.Warn("cannot write down how long a preloader took to load", "error", err)
	}
}

// write replaces the file as a whole. writer, the name of a preloader, keeps the
// temporary files of concurrent writers apart.
func (t times) write(path, writer string) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+"."+writer, data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+"."+writer, path)
}
