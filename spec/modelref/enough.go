package modelref

import (
	"path"
	"slices"
	"strings"
)

// This file decides which files of a model an engine needs. A name means all of them. So a
// selection can serve a name only if it leaves out no file that an engine may read. The names
// of the files decide that.

// weights lists the formats of weights by the ends of file names, and whether engines read them.
// One complete format is enough.
var weights = map[string]bool{
	".safetensors": true, ".bin": true, ".pt": true, ".pth": true, ".gguf": true,
	".onnx": false, ".onnx_data": false, ".h5": false, ".msgpack": false, ".tflite": false, ".ot": false, ".npz": false, ".mlmodel": false,
}

// Files that no engine reads: documents, by the ends and the beginnings of their names; and
// folders with the same model for other programs.
var (
	documents = []string{".md", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp"}
	papers    = []string{"license", "notice", "readme", ".git"}
	copies    = []string{"original", "onnx", "openvino", "coreml", "metal"}
)

// Need returns which of the left-out files an engine needs beside those that are there.
type Need func(has, leftOut []string) []string

// Lacks returns the left-out files that an engine may need, in their order. Weights are needed
// unless another format is complete. Documents and folders of other programs are not needed.
// Everything else is.
func Lacks(has, leftOut []string) (lacks []string) {
	kept, lost := map[string]bool{}, map[string]bool{} // formats: of what is there, of what is not
	for _, name := range has {
		if !elsewhere(name) {
			kept[format(name)] = true
		}
	}
	var left []string // weights
	for _, name := range leftOut {
		switch _, isWeights := weights[format(name)]; {
		case elsewhere(name) || isDocument(name):
		case isWeights:
			lost[format(name)] = true
			left = append(left, name)
		default:
			lacks = append(lacks, name)
		}
	}
	for ending, read := range weights {
		if read && kept[ending] && !lost[ending] {
			return lacks
		}
	}
	lacks = append(lacks, left...)
	slices.Sort(lacks)
	return lacks
}

// format returns the end of a file's name; for an index of weights, that of the weights.
func format(name string) string {
	return path.Ext(strings.TrimSuffix(name, ".index.json"))
}

// elsewhere reports whether a file is in a folder for other programs.
func elsewhere(name string) bool {
	folder, _, below := strings.Cut(name, "/")
	return below && slices.Contains(copies, folder)
}

func isDocument(name string) bool {
	base := strings.ToLower(path.Base(name))
	return slices.Contains(documents, path.Ext(base)) || slices.ContainsFunc(papers, func(begin string) bool { return strings.HasPrefix(base, begin) })
}
