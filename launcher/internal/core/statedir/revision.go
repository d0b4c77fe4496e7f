package statedir

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// revisionFile says where the revisions of the latest launcher began.
const revisionFile = "revision"

type beginning struct {
	Revision uint64 `json:"revision"`
	Stamp    Stamp  `json:"stamp"`
}

// NextRevision returns where the revisions of this launcher begin: at 0 for the first
// launcher of the folder, else beyond all that earlier ones gave out, of which some may not
// be in a record. No launcher gives out more than one for each millisecond of its life. So
// that is the largest of the highest one in a record, the milliseconds since 1970, and, as
// the wall clock may have been set back, where the latest launcher began and the time since
// then. An error says that the beginning could not be noted; the revision is right all the
// same.
func (d *Dir) NextRevision(written uint64, wall time.Time, c Clock) (uint64, error) {
	next := written
	if !d.New {
		next = max(written, uint64(wall.UnixMilli()), d.afterLatest(c))
	}
	text, err := json.Marshal(beginning{Revision: next, Stamp: c.Stamp(time.Now())})
	path := filepath.Join(d.path, revisionFile)
	if err == nil {
		err = writeOver(path+spare, text)
	}
	if err == nil {
		err = os.Rename(path+spare, path)
	}
	if err != nil {
		return next, fmt.Errorf("cannot note where revisions begin: %w", err)
	}
	return next, nil
}

// afterLatest returns a revision beyond all of the latest launcher; 0: it is not known.
func (d *Dir) afterLatest(c Clock) uint64 {
	var latest beginning
	text, err := readOwn(filepath.Join(d.path, revisionFile))
	if err != nil || json.Unmarshal(text, &latest) != nil {
		return 0
	}
	if latest.Stamp.Boot != c.boot() || len(latest.Stamp.At) != 1 {
		return latest.Revision + 1
	}
	return latest.Revision + uint64(max(0, c.since()-latest.Stamp.At[0]).Milliseconds()) + 1
}
