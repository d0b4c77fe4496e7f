package catalogue

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const document = "../../../../spec/catalogue.md"

func TestDocumentHasEveryField(t *testing.T) {
	data, err := os.ReadFile(document)
	require.NoError(t, err)
	keys := func(fields []field) (all []string) {
		for _, f := range fields {
			all = append(all, f.key)
		}
		return all
	}
	d := decoder{machine: machine(), places: map[string]Place{}}
	for heading, fields := range map[string][]field{
		"Commands": d.commandFields(&Command{}), "Models": d.modelFields(&Model{}), "Selectors": (&Selector{}).fields(), "Profiles": (&Profile{}).fields(),
	} {
		_, section, _ := strings.Cut(string(data), "\n## "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var rows []string
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(section, -1) {
			rows = append(rows, row[1])
		}
		assert.Equal(t, keys(fields), rows, heading)
	}
}

// The column "change" of the document says what Diff says.
func TestDocumentSaysWhatAChangeTakes(t *testing.T) {
	data, err := os.ReadFile(document)
	require.NoError(t, err)
	m := &Model{}
	engine, launcher := m.ofEngine(), m.ofLauncher()
	engine["args"] = nil // compared with options
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|.*\\| (restart|in place)[^|]* \\|$").FindAllStringSubmatch(string(data), -1) {
		if row[2] == "restart" {
			assert.Contains(t, engine, row[1])
			delete(engine, row[1])
		} else {
			assert.Contains(t, launcher, row[1])
			delete(launcher, row[1])
		}
	}
	assert.Empty(t, engine)
	assert.Equal(t, map[string]any{"params.variants": launcher["params.variants"]}, launcher)
}

func TestExampleOfTheDocumentIsRight(t *testing.T) {
	data, err := os.ReadFile(document)
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(data), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	m := machine()
	m.Env = func(string) (string, bool) { return "x", true }
	c, err := parse([]source{{"hotseat.yaml", []byte(example), true}}, m)
	require.NoError(t, err)
	assert.Equal(t, []string{"qwen", "gpt-4o-mini", "qwen:calm", "coder", "whisper-1", "any"}, c.Names())
}
