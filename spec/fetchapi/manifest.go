package fetchapi

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"hotseat.dev/hotseat/spec/modelref"
)

// Manifest says what one version of a model consists of. Once each file has its
// SHA256 it never changes.
type Manifest struct {
	URI      string `json:"uri"`                // of the source, without the revision
	Ref      string `json:"ref,omitempty"`      // the revision that was asked for, such as a branch
	Revision string `json:"revision,omitempty"` // which version of the source this is; empty if it is known only after the fetch
	Files    []File `json:"files"`

	modelref.Selection          // which of the source's files these are, clean; none: all
	LeftOut            []string `json:"left_out,omitempty"` // the source's other files, by their names
}

// File is one file of a model.
type File struct {
	Path    string `json:"path"` // relative, with slashes
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256,omitempty"`   // empty: the source does not say
	GitSHA1 string `json:"git_sha1,omitempty"` // that of a Git blob, where the source says it
}

// Limits of a manifest.
const (
	MaxFiles    = 100_000
	maxPath     = 1024
	maxPathPart = 255
)

// Bytes is the size of all files.
func (m *Manifest) Bytes() int64 {
	var sum int64
	for _, f := range m.Files {
		sum += f.Size
	}
	return sum
}

// Key names the version: two versions with one key are the same.
func (m *Manifest) Key() string {
	name := m.URI + "\x00" + m.Revision
	if !m.All() {
		name += "\x00" + strings.Join(m.Include, "\x00") + "\x00\x00" + strings.Join(m.Exclude, "\x00")
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// Digest returns the SHA-256 of the model's list of files, as sha256:HEX. The list is the
// output of sha256sum, sorted by name: for each file a line with its hash, two spaces and its
// name. The digest is empty until each file has its hash. It does not depend on the address
// and the revision: the same files have the same digest wherever they come from.
func (m *Manifest) Digest() string {
	lines := make([]string, len(m.Files))
	for i, f := range m.Files {
		if f.SHA256 == "" {
			return ""
		}
		lines[i] = f.Path + "\x00" + f.SHA256 + "  " + f.Path + "\n"
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		_, text, _ := strings.Cut(line, "\x00")
		h.Write([]byte(text))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// CheckDigest refuses a text that is not a digest.
func CheckDigest(digest string) error {
	if hash, is := strings.CutPrefix(digest, "sha256:"); !is || !isHex(hash, 64) {
		return fmt.Errorf("%q is no digest: write sha256: and 64 hexadecimal digits in lower case", digest)
	}
	return nil
}

// Lacks returns the files that the selection leaves out and that an engine may need. It
// looks only at one folder of the model, or at the whole model if folder is empty.
func (m *Manifest) Lacks(folder string) []string { return m.LacksFor(folder, modelref.Lacks) }

// LacksFor is Lacks for an engine whose need is known.
func (m *Manifest) LacksFor(folder string, need modelref.Need) []string {
	if len(m.LeftOut) == 0 {
		return nil
	}
	var has, leftOut []string
	in := func(name string) (string, bool) {
		if folder == "" {
			return name, true
		}
		return strings.CutPrefix(name, folder+"/")
	}
	for _, f := range m.Files {
		if name, ok := in(f.Path); ok {
			has = append(has, name)
		}
	}
	for _, path := range m.LeftOut {
		if name, ok := in(path); ok {
			leftOut = append(leftOut, name)
		}
	}
	return need(has, leftOut)
}

// Check refuses an invalid manifest: with names that leave the folder, that are not text or
// that collide, with invalid sizes or hashes, with no files, or with too many.
func (m *Manifest) Check() error {
	switch {
	case m.URI == "":
		return errors.New("the manifest names no source")
	case len(m.Files) == 0:
		return fmt.Errorf("%s has no files", m.URI)
	case len(m.Files)+len(m.LeftOut) > MaxFiles:
		return fmt.Errorf("%s has %d files, more than the limit of %d", m.URI, len(m.Files)+len(m.LeftOut), MaxFiles)
	case len(m.LeftOut) > 0 && m.All():
		return fmt.Errorf("%s is refused: it leaves files out, but has no selection", m.URI)
	case !m.SameSelection(m.Clean()):
		return fmt.Errorf("%s is refused: its selection %q is not in order", m.URI, m.Selection)
	}
	if err := m.Selection.Check(); err != nil {
		return fmt.Errorf("%s is refused: %w", m.URI, err)
	}
	for _, name := range m.LeftOut {
		if err := CheckPath(name); err != nil {
			return fmt.Errorf("%s is refused: %w", m.URI, err)
		}
	}
	for _, name := range []string{m.Ref, m.Revision} {
		if name == "" {
			continue
		}
		if err := CheckPath(name); err != nil {
			return fmt.Errorf("%s is refused: its revision: %w", m.URI, err)
		}
	}
	if strings.Contains(m.Revision, "/") {
		return fmt.Errorf("%s is refused: its revision %q has a slash", m.URI, m.Revision)
	}
	return m.checkFiles()
}

func (m *Manifest) checkFiles() error {
	var sum int64
	files := make(map[string]bool, len(m.Files))
	folders, sizes := map[string]bool{}, map[string]int64{}
	for _, f := range m.Files {
		if err := f.check(); err != nil {
			return fmt.Errorf("%s is refused: %w", m.URI, err)
		}
		if files[f.Path] {
			return fmt.Errorf("%s is refused: it names the file %q twice", m.URI, f.Path)
		}
		files[f.Path] = true
		if size, twice := sizes[f.SHA256]; twice && f.SHA256 != "" && size != f.Size {
			return fmt.Errorf("%s is refused: the file %q has the sha256 of another file, but another size", m.URI, f.Path)
		}
		sizes[f.SHA256] = f.Size
		for dir := path.Dir(f.Path); dir != "." && !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
		if sum += f.Size; sum < 0 {
			return fmt.Errorf("%s is refused: the sum of the sizes of its files is too large", m.URI)
		}
	}
	for dir := range folders {
		if files[dir] {
			return fmt.Errorf("%s is refused: %q is a file and a folder", m.URI, dir)
		}
	}
	return nil
}

func (f *File) check() error {
	if err := CheckPath(f.Path); err != nil {
		return err
	}
	switch {
	case f.Size < 0:
		return fmt.Errorf("%q has the size %d", f.Path, f.Size)
	case f.SHA256 != "" && !isHex(f.SHA256, 64):
		return fmt.Errorf("%q has the sha256 %q, which is not 64 hexadecimal digits in lower case", f.Path, f.SHA256)
	case f.GitSHA1 != "" && !isHex(f.GitSHA1, 40):
		return fmt.Errorf("%q has the Git hash %q, which is not 40 hexadecimal digits in lower case", f.Path, f.GitSHA1)
	}
	return nil
}

// CheckPath refuses the name of a file that would not be below the model's folder.
func CheckPath(name string) error {
	switch {
	case name == "":
		return errors.New("a file has no name")
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is not UTF-8", name)
	case len(name) > maxPath:
		return fmt.Errorf("the name of a file has %d bytes, more than the limit of %d", len(name), maxPath)
	case strings.HasPrefix(name, "/"):
		return fmt.Errorf("the name %q is absolute; names are relative to the model's folder", name)
	case strings.ContainsFunc(name, unicode.IsControl) || strings.Contains(name, `\`):
		return fmt.Errorf("the name %q has a character that names of files may not have", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || len(part) > maxPathPart {
			return fmt.Errorf("the name %q is refused: its part %q is not a name below the model's folder", name, part)
		}
	}
	return nil
}

func isHex(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}
