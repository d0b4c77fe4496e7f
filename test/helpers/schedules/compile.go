package schedules

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// checker finds out, without building anything, whether a package can be compiled when
// files of it are replaced.
type checker struct {
	files    *token.FileSet
	packages map[string]listed // by their folders
	imports  types.Importer
	parsed   map[string]*ast.File // of files as they stand
}

type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// newChecker knows the packages of some folders and of those under them.
func newChecker(dirs []string) (*checker, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	for _, dir := range dirs {
		if strings.HasSuffix(dir, ".go") {
			args = append(args, "./"+filepath.Dir(dir))
			continue
		}
		args = append(args, "./"+dir+"/...")
	}
	list := exec.Command("go", args...)
	list.Stderr = os.Stderr
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of %q: %w", dirs, err)
	}
	c := &checker{files: token.NewFileSet(), packages: map[string]listed{}, parsed: map[string]*ast.File{}}
	exports := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot read the list of packages: %w", err)
		}
		c.packages[p.Dir], exports[p.ImportPath] = p, p.Export
	}
	c.imports = importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c, nil
}

// check compiles the packages of the replaced files, which are given by their paths. Each
// package sees the others as they stand.
func (c *checker) check(replaced map[string]string) error {
	texts := map[string]map[string]string{}
	for path, text := range replaced {
		dir := filepath.Dir(path)
		if texts[dir] == nil {
			texts[dir] = map[string]string{}
		}
		texts[dir][path] = text
	}
	for dir, texts := range texts {
		p, known := c.packages[dir]
		if !known {
			return fmt.Errorf("%s is no package", dir)
		}
		for path := range texts {
			if !slices.Contains(p.GoFiles, filepath.Base(path)) {
				return fmt.Errorf("the simulation is built without %s (a test, a build constraint or cgo): a change to it cannot be checked", path)
			}
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := c.parse(filepath.Join(dir, name), texts)
			if err != nil {
				return err
			}
			files = append(files, file)
		}
		config := types.Config{Importer: c.imports}
		if _, err := config.Check(p.ImportPath, c.files, files, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) parse(path string, texts map[string]string) (*ast.File, error) {
	if text, replaced := texts[path]; replaced {
		return parser.ParseFile(c.files, path, text, parser.SkipObjectResolution)
	}
	if c.parsed[path] == nil {
		file, err := parser.ParseFile(c.files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.parsed[path] = file
	}
	return c.parsed[path], nil
}
