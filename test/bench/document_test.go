package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/figures"
)

func TestTheDocumentHasItsMarks(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", figures.Document))
	require.NoError(t, err)
	for _, mark := range []string{beginMark, fetchMark, weightsMark, startsMark, firstsMark, tokensMark, realSwapsMark, figures.EndMark} {
		assert.Contains(t, string(data), mark)
	}
}
