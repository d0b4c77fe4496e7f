package images

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

// user is whom our programs run as: nobody that the machine knows.
const user = "65532:65532"

// Product is one of the images that hotseat consists of.
type Product struct {
	Name        string
	Description string
	Programs    []string          // they are in the image's root
	Links       map[string]string // see Image
	Entrypoint  string
}

// Products are all of them, by their names in the chart.
var Products = []Product{
	{Name: "controller", Description: "Binds requesters to inference servers in the launchers of their nodes.", Programs: []string{"controller", "frontdoor"}, Entrypoint: "/controller"},
	{Name: "launcher", Description: "Gives the launcher to Pods of an image that has an engine.", Programs: []string{"launcher", "modelfetch", "copier", "podresources"}, Entrypoint: "/launcher"},
	{Name: "requester", Description: "Holds GPUs for an inference server, and carries what comes in to it.", Programs: []string{"requester"}, Entrypoint: "/requester",
		Links: map[string]string{"/app/requester": "/requester"}}, // where Pods of the llm-d community have theirs
}

// Image says what the product's image holds, of programs that are built in a
// folder. version is that of hotseat.
func (p Product) Image(folder, architecture, version string) (Image, error) {
	image := Image{
		Files: map[string]string{}, Links: p.Links, Entrypoint: []string{p.Entrypoint}, User: user, Architecture: architecture,
		Labels: map[string]string{
			"org.opencontainers.image.title": "hotseat " + p.Name, "org.opencontainers.image.description": p.Description,
			"org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	for _, program := range p.Programs {
		file := filepath.Join(folder, program)
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return Image{}, fmt.Errorf("cannot read how the program %s of image %s was built: %w", program, p.Name, err)
		}
		image.Files["/"+program] = file
		for _, s := range info.Settings {
			switch s.Key {
			case "GOARCH":
				if s.Value != architecture {
					return Image{}, fmt.Errorf("the program %s is built for %s, and the image is for %s", file, s.Value, architecture)
				}
			case "vcs.revision":
				image.Labels["org.opencontainers.image.revision"] = s.Value
			case "vcs.time": // of the commit, which is the same whoever builds
				if image.Created, err = time.Parse(time.RFC3339, s.Value); err != nil {
					return Image{}, fmt.Errorf("cannot read of which time %s is: %w", file, err)
				}
			}
		}
	}
	return image, nil
}

// Missing says which of the product's programs are not in a folder.
func (p Product) Missing(folder string) string {
	var missing []string
	for _, program := range p.Programs {
		if _, err := buildinfo.ReadFile(filepath.Join(folder, program)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, program)
		}
	}
	return strings.Join(missing, ", ")
}
