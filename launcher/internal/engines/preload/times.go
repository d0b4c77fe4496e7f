package preload

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// times say how long preloaders took to load, in this pool and in earlier pools with
// the same folder.
type times struct {
	Last    time.Duration `json:"last_ns"` // how long the last load took; 0: none has finished yet
	Longest time.Duration `json:"longest_ns"`
}

// timesName is the file that keeps the times.
const timesName = "times.json"

// readTimes reads the times that an earlier pool has written. It returns zero times
// when there is no valid file.
func readTimes(dir string) (t times) {
	data, err := os.ReadFile(filepath.Join(dir, timesName))
	if err != nil || json.Unmarshal(data, &t) != nil || t.Last < 0 || t.Longest < t.Last {
		return times{}
	}
	return t
}

// recordLoadTime records how long a preloader took to load.
func (p *Pool) recordLoadTime(l *preloader, took time.Duration) {
	p.mu.Lock()
	p.times = times{Last: took, Longest: max(took, p.times.Longest)}
	t := p.times
	p.mu.Unlock()
	if err := t.write(filepath.Join(p.opts.Dir, timesName), l.name); err != nil {
		p.opts.Logger.Warn("cannot record how long a preloader took to load", "error", err)
	}
}

// write replaces the file atomically. writer is a name that keeps the temporary files
// of concurrent writers apart.
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
