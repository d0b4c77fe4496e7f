package guide

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	readme    = "README.md"
	preloaded = "spec/guide/preloaded-starts.md"
	measured  = "spec/guide/benchmarks.md"
)

// figures are those that README and the guide tell, and the rows of spec/benchmarks.md, by
// their beginnings, that they are taken from.
var figures = []struct {
	row    string
	values []string
	pages  []string
}{
	{"| `vllm serve` by hand, until `/health` answers |", []string{"25.23"}, []string{readme, preloaded, measured}},
	{"| `vllm serve` by hand, until `/health` answers |", []string{"2.59 GiB"}, []string{preloaded, measured}},
	{"| launcher, exec, until `awake` |", []string{"24.52", "2.59 GiB"}, []string{preloaded, measured}},
	{"| launcher, fork, until `awake` |", []string{"0.98"}, []string{readme, preloaded, measured}},
	{"| launcher, fork, until `awake` |", []string{"1.13 GiB"}, []string{preloaded, measured}},
	{"| the first instance after `serve` |", []string{"9.04", "22.56"}, []string{preloaded}},
	{"| the first with another `OMP_NUM_THREADS` |", []string{"8.97", "22.28"}, []string{preloaded}},
	{"| back to back |", []string{"7.20", "5.09"}, []string{readme}},
	{"| back to back |", []string{"7.20 / 18.2", "5.09 / 9.53"}, []string{measured}},
	{"| a second between |", []string{"12.5 / 36.0", "8.61 / 29.9"}, []string{measured}},
	{"| cold: by exec, weights from the disk |", []string{"39.81"}, []string{measured}},
	{"| by exec, weights in the page cache |", []string{"35.12"}, []string{measured}},
	{"| preloaded: by fork, weights in the page cache |", []string{"10.60"}, []string{measured}},
	{"| create call → child's first instruction; bare", []string{"3.36 / 6.53", "1.86 / 5.95"}, []string{measured}},
	{"| swap, beyond the engines' own time: sleeper in, sleep and wake at once;", []string{"2.70 / 6.08", "3.30 / 6.47"}, []string{measured}},
	{"| instance proxy, 1 clients: latency (ms);", []string{"1.06 / 2.49", "0.99 / 2.15"}, []string{measured}},
	{"| idle launcher: resident memory;", []string{"25.3 MB", "10.0 MB"}, []string{measured}},
	{"| the whole swap on the GPU |", []string{"476", "929"}, []string{measured}},
	{"| by hand: the whole swap |", []string{"446", "909"}, []string{measured}},
	{"| 3.5 GiB, with the caches |", []string{"33.0", "41.7", "3.8"}, []string{measured}},
	{"| 15.2 GiB, with the caches |", []string{"76.9", "25.6"}, []string{measured}},
	{"| 3.5 GiB, asleep |", []string{"782"}, []string{measured}},
	{"| HTTPS, one file of 4.00 GiB | launcher pull |", []string{"9.88"}, []string{measured}},
	{"| HTTPS, one file of 4.00 GiB | curl |", []string{"8.77"}, []string{measured}},
	{"| hub, one file of 4.00 GiB | launcher pull |", []string{"9.55"}, []string{measured}},
	{"| hub, one file of 4.00 GiB | hf download |", []string{"18.45"}, []string{measured}},
	{"| S3, one file of 4.00 GiB | launcher pull |", []string{"8.11"}, []string{measured}},
	{"| S3, one file of 4.00 GiB | s5cmd |", []string{"4.78"}, []string{measured}},
	{"| hot start, Pod scheduled → Ready by gate;", []string{"644", "618"}, []string{measured}},
	{"| hot start, Pod scheduled → Ready by probe;", []string{"687", "618"}, []string{measured}},
	{"| engine killed → its requester is no endpoint any more;", []string{"70.9", "585"}, []string{measured}},
	{"| 1000 requesters at once on 100 nodes:", []string{"74", "132"}, []string{measured}},
	{"| two models take turns on 30 nodes of one GPU, 15 and 5 replicas and the other way round, main memory for 2 of them,", []string{"95 %", "68 %"}, []string{measured}},
}

func TestFiguresOfThePagesAreThoseOfTheTables(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		return string(text)
	}
	tables := read("spec/benchmarks.md")
	for _, f := range figures {
		require.Equal(t, 1, strings.Count(tables, "\n"+f.row), "spec/benchmarks.md has one row %q", f.row)
		_, after, _ := strings.Cut(tables, "\n"+f.row)
		row, _, _ := strings.Cut(after, "\n")
		for _, value := range f.values {
			assert.Contains(t, row, value, "the row %q has other figures now: write them into %v and into this table", f.row, f.pages)
			for _, page := range f.pages {
				assert.Contains(t, read(page), value, page)
			}
		}
	}
}
