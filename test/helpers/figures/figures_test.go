package figures

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAQuantileIsOneOfTheSamples(t *testing.T) {
	var hundred Times
	for n := 100; n > 0; n-- {
		hundred = append(hundred, time.Duration(n))
	}
	assert.EqualValues(t, 51, hundred.P50())
	assert.EqualValues(t, 100, hundred.P99())
	assert.EqualValues(t, 3, Times{3, 1, 2}.P99(), "with few samples it is the slowest")
	assert.Zero(t, Times(nil).P50())
}

func TestARowIsMetWhenEachOfItsTargetsIs(t *testing.T) {
	ours, bare := Times{1e6, 2e6, 9e6}, Times{1e6}
	assert.True(t, Timed("f", ours, bare, 2*time.Millisecond, 9*time.Millisecond).Met)
	assert.False(t, Timed("f", ours, bare, time.Millisecond, 9*time.Millisecond).Met)
	assert.False(t, Timed("f", ours, bare, 2*time.Millisecond, 8*time.Millisecond).Met)
	assert.Equal(t, Row{
		Figure: "f (ms)", Samples: 3, Ours: "2.00 / 9.00", Bare: "1.00 / 1.00", Beside: "+1.00 ms", Target: "p50 ≤ 2 ms", Met: true,
	}, Timed("f", ours, bare, 2*time.Millisecond, 0))
}

func TestATableBeginsWithEachHeading(t *testing.T) {
	head := "| figure | samples | it p50 / p99 | bare p50 / p99 | beside the bare | target | met |\n|---|---:|---:|---:|---:|---|---|\n"
	assert.Equal(t, head+"| a | 1 |  |  |  |  |  |\n| b | 1 |  |  |  |  |  |\n\n### More\n\n"+head+"| c | 1 |  |  |  |  |  |\n",
		Render("it", []Row{{Figure: "a", Samples: 1}, {Figure: "b", Samples: 1}, {Heading: "More", Figure: "c", Samples: 1}}))
	assert.Equal(t, "### Only\n\n"+head+"| a | 1 |  |  |  |  |  |\n", Render("it", []Row{{Heading: "Only", Figure: "a", Samples: 1}}))
}

func TestWhatIsWrittenByHandStaysWhenTheTableIsWritten(t *testing.T) {
	const mark = "<!-- begin -->"
	path := filepath.Join(t.TempDir(), "doc.md")
	require.NoError(t, os.WriteFile(path, []byte("before\n"+mark+"\nold\n"+EndMark+"\nafter\n"), 0o600))
	require.NoError(t, rewrite(path, mark, "new\n"))
	require.NoError(t, rewrite(path, mark, "newer\n"))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "before\n"+mark+"\n\nnewer\n\n"+EndMark+"\nafter\n", string(data))

	require.NoError(t, os.WriteFile(path, []byte("no marks\n"), 0o600))
	assert.Error(t, rewrite(path, mark, "new\n"))
}

func TestTheNamedPartsRunAndAWrongNameRunsNone(t *testing.T) {
	var ran []string
	part := func(name string) Part[int] {
		return Part[int]{Name: name, Run: func(int) ([]Row, error) { ran = append(ran, name); return []Row{{Figure: name}}, nil }}
	}
	parts := Parts[int]{part("a"), part("b"), part("c")}
	parts[1].Heading = "B"
	for only, want := range map[string][]string{"": {"a", "b", "c"}, "c,a": {"a", "c"}, "b": {"b"}} {
		ran = nil
		rows, err := parts.Run(t.Context(), 0, only, io.Discard)
		require.NoError(t, err)
		assert.Len(t, rows, len(want))
		assert.Equal(t, want, ran, only)
		for _, r := range rows {
			assert.Equal(t, r.Figure == "b", r.Heading == "B", r.Figure)
		}
	}
	for only, wrong := range map[string]string{"a,bb": `"bb"`, "a,": `""`, "a, b": `" b"`} {
		ran = nil
		_, err := parts.Run(t.Context(), 0, only, io.Discard)
		require.EqualError(t, err, "there is no part "+wrong+": the parts are a, b, c")
		assert.Empty(t, ran, only)
	}
}
