package guide

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMarkOfABlockSaysWhereItRuns(t *testing.T) {
	blocks, err := parse("page.md", []byte("# Title\n```sh\na\nb\n```\n```text\nshown\n```\n```sh terminal=x\nc\n```\n```sh cluster\nd\n```\n```sh not-run: a reason\ne\n```\n"))
	require.NoError(t, err)
	assert.Equal(t, []Block{
		{Page: "page.md", Line: 2, Place: Shell, Commands: "a\nb\n"},
		{Page: "page.md", Line: 9, Place: Terminal, Terminal: "x", Commands: "c\n"},
		{Page: "page.md", Line: 12, Place: Cluster, Commands: "d\n"},
		{Page: "page.md", Line: 15, Place: NotRun, Reason: "a reason", Commands: "e\n"},
	}, blocks)
}

func TestBlockWithoutAKnownMarkIsAnError(t *testing.T) {
	for _, text := range []string{"```\na\n```\n", "```bash\na\n```\n", "```sh soon\na\n```\n", "```sh not-run: \na\n```\n", "```sh\na\n"} {
		_, err := parse("page.md", []byte(text))
		assert.ErrorContains(t, err, "page.md:1", text)
	}
}

func TestBlockFailsWithItsFirstCommandThatFails(t *testing.T) {
	for commands, verdict := range map[string]string{
		"true\nA=1\n":                         "",
		"true\nfalse\ntrue\n":                 "this command or its pipeline failed: false",
		"false | true\n":                      "this command or its pipeline failed: true",
		"false # refused\nfalse  # refused\n": "",
		"true # refused\n":                    "this command was to be refused: true # refused",
		"exit 0\n":                            "the shell ended in this block; its output has the reason",
	} {
		var screen bytes.Buffer
		shell, err := NewSession(t.Context(), t.TempDir(), nil, &screen)
		require.NoError(t, err)
		err = shell.Paste(Block{Page: "page.md", Line: 1, Commands: commands})
		if verdict == "" {
			require.NoError(t, err, commands)
			require.NoError(t, shell.Close())
			continue
		}
		require.EqualError(t, err, "page.md:1: "+verdict, commands)
		_ = shell.Close() // it has exited with an error
	}
}

func TestBlocksOfAPageShareAShell(t *testing.T) {
	var screen bytes.Buffer
	shell, err := NewSession(t.Context(), t.TempDir(), nil, &screen)
	require.NoError(t, err)
	require.NoError(t, shell.Paste(Block{Commands: "A=here\n"}))
	require.NoError(t, shell.Paste(Block{Commands: "echo $A\n"}))
	require.NoError(t, shell.Close())
	assert.Equal(t, "here\n", screen.String())
}
