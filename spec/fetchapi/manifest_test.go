package fetchapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/modelref"
)

func TestAManifestThatNoSourceMayGiveIsRefused(t *testing.T) {
	hash := strings.Repeat("a", 64)
	many := make([]File, MaxFiles+1)
	for n := range many {
		many[n] = File{Path: fmt.Sprint(n)}
	}
	for name, c := range map[string]struct {
		files []File
		says  string
	}{
		"no files":                     {nil, "has no files"},
		"too many files":               {many, "the limit of 100000"},
		"a name that leaves":           {[]File{{Path: "a/../../b"}}, `".."`},
		"a name that is absolute":      {[]File{{Path: "/etc/passwd"}}, "absolute"},
		"an empty name":                {[]File{{}}, "no name"},
		"an empty part":                {[]File{{Path: "a//b"}}, `""`},
		"the folder itself":            {[]File{{Path: "."}}, `"."`},
		"a name that is not UTF-8":     {[]File{{Path: "a\xff"}}, "not UTF-8"},
		"a name that a terminal obeys": {[]File{{Path: "a\x1b[2J"}}, "character"},
		"a backslash":                  {[]File{{Path: `..\a`}}, "character"},
		"a part that is too long":      {[]File{{Path: strings.Repeat("x", 256)}}, "is refused"},
		"a path that is too long":      {[]File{{Path: strings.Repeat("x/", 600)}}, "1200 bytes"},
		"a name twice":                 {[]File{{Path: "a"}, {Path: "a"}}, "twice"},
		"one content of two sizes":     {[]File{{Path: "a", SHA256: hash}, {Path: "b", SHA256: hash, Size: 1}}, "another size"},
		"a file that is a folder":      {[]File{{Path: "a"}, {Path: "a/b/c"}}, "a file and a folder"},
		"a negative size":              {[]File{{Path: "a", Size: -1}}, "-1"},
		"sizes that overflow":          {[]File{{Path: "a", Size: 1 << 62}, {Path: "b", Size: 1 << 62}}, "is too large"},
		"a hash that is a path":        {[]File{{Path: "a", SHA256: "../../x"}}, "64 hexadecimal digits"},
		"a hash in upper case":         {[]File{{Path: "a", SHA256: strings.ToUpper(hash)}}, "lower case"},
		"a Git hash that is none":      {[]File{{Path: "a", GitSHA1: "x"}}, "40 hexadecimal digits"},
	} {
		t.Run(name, func(t *testing.T) {
			m := Manifest{URI: "https://host/m", Files: c.files}
			require.ErrorContains(t, m.Check(), c.says)
		})
	}
	for says, m := range map[string]Manifest{
		"but has no selection": {LeftOut: []string{"b"}},
		"is not in order":      {Selection: modelref.Selection{Include: []string{"b", "a"}}},
		"matches nothing":      {Selection: modelref.Selection{Include: []string{"/a"}}},
		`".."`:                 {Selection: modelref.Selection{Include: []string{"a"}}, LeftOut: []string{"../b"}},
	} {
		m.URI, m.Files = "https://host/m", []File{{Path: "a"}}
		require.ErrorContains(t, m.Check(), says)
	}
	good := Manifest{URI: "hf://a/b", Files: []File{{Path: "a/b.txt", Size: 1, SHA256: hash}, {Path: "a/ü.txt"}, {Path: "..a"}}}
	require.NoError(t, good.Check())
}

func TestTwoRevisionsHaveTwoKeys(t *testing.T) {
	a := Manifest{URI: "hf://a/b", Revision: "1"}
	b := Manifest{URI: "hf://a/b", Revision: "2"}
	require.NotEqual(t, a.Key(), b.Key())
	keys := map[string]bool{a.Key(): true}
	for _, s := range []modelref.Selection{{Include: []string{"x"}}, {Exclude: []string{"x"}}, {Include: []string{"x", "y"}}, {Include: []string{"x"}, Exclude: []string{"y"}}} {
		a.Selection = s
		require.False(t, keys[a.Key()], "two selections are two versions")
		keys[a.Key()] = true
	}
	require.Len(t, a.Key(), 32)
}

// By hand: (cd MODEL && LC_ALL=C sha256sum $(find . -type f -printf '%P\n' | LC_ALL=C sort)) | sha256sum
func TestTheDigestIsThatOfWhatSha256sumPrints(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	m := Manifest{URI: "x://m", Revision: "1", Files: []File{{Path: "b", SHA256: b}, {Path: "a/c", SHA256: a}, {Path: "a.c", SHA256: b}}}
	sum := sha256.Sum256([]byte(b + "  a.c\n" + a + "  a/c\n" + b + "  b\n"))
	require.Equal(t, "sha256:"+hex.EncodeToString(sum[:]), m.Digest())
	require.NoError(t, CheckDigest(m.Digest()))
	m.URI, m.Revision = "y://m", "2"
	require.Equal(t, "sha256:"+hex.EncodeToString(sum[:]), m.Digest(), "wherever they come from")
	m.Files[0].SHA256 = ""
	require.Empty(t, m.Digest())
	for _, wrong := range []string{"", "sha256:", a, "sha256:" + strings.ToUpper(a), "sha512:" + a} {
		require.ErrorContains(t, CheckDigest(wrong), "is no digest")
	}
}
