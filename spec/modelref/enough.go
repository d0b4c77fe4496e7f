package modelref

import (
	"path"
	"slices"
	"strings"
)

// What an engine needs of a model. An engine that asks for a model by its name means
// all of it; so a selection of its files serves a name where nothing is left out that
// an engine may read. What that is, is told by the names of files.

// weights are the formats of weights by the ends of their names, and whether engines
// read them. One that a model has whole is enough.
var weights = map[string]bool{
	".safetensors": true, ".bin": true, ".pt": true, ".pth": true, ".gguf": true,
	".onnx": false, ".onnx_data": false, ".h5": false, ".msgpack": false, ".tflite": false, ".ot": false, ".npz": false, ".mlmodel": false,
}

// Of what no engine reads: documents by the ends of their names, and by how they begin;
// and folders of a model that have it once more, for other programs.
var (
	documents = []string{".md", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp"}
	papers    = []string{"license", "notice", "readme", ".git"}
	copies    = []string{"original", "onnx", "openvino", "coreml", "metal"}
)

// Lacks gives those of the files that a selection leaves out that an engine may need,
// in their order. Weights are needed unless another format is there whole; documents
// and the folders of other programs are not; everything else is.
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

// format is the end of a file's name, which for an index of weights is theirs.
func format(name string) string {
	return path.Ext(strings.TrimSuffix(name, ".index.json"))
}

// elsewhere says that a file is in a folder for other programs.
func elsewhere(name string) bool {
	folder, _, below := strings.Cut(name, "/")
	return below && slices.Contains(copies, folder)
}

func isDocument(name string) bool {
	base := strings.ToLower(path.Base(name))
	return slices.Contains(documents, path.Ext(base)) || slices.ContainsFunc(papers, func(begin string) bool { return strings.HasPrefix(base, begin) })
}
