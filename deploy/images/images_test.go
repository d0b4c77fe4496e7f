package images

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requester is a product of a program that is quickly built.
var requester = Product{Name: "requester", Description: "Waits.", Programs: []string{"requester"}, Entrypoint: "/requester"}

// build puts a program of ours into a folder.
func build(t *testing.T, folder, pkg string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", folder+"/", "hotseat.dev/hotseat/"+pkg)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// written makes the product of a folder, and gives where.
func written(t *testing.T, from string) (string, v1.Hash) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "requester")
	digest, err := requester.Write(from, to, "v1", []string{runtime.GOARCH})
	require.NoError(t, err)
	return to, digest
}

func TestAnImageMadeTwiceHasTheSameDigest(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	build(t, filepath.Join(first, runtime.GOARCH), "dualpods/cmd/requester", "CGO_ENABLED=0")
	require.NoError(t, os.CopyFS(second, os.DirFS(first)))
	program := filepath.Join(second, runtime.GOARCH, "requester")
	require.NoError(t, os.Chmod(program, 0o700))
	require.NoError(t, os.Chtimes(program, time.Now(), time.Now().Add(-48*time.Hour)))
	one, digest := written(t, first)
	two, again := written(t, second)
	assert.Equal(t, digest, again)
	index, err := os.ReadFile(filepath.Join(one, "index.json"))
	require.NoError(t, err)
	indexAgain, err := os.ReadFile(filepath.Join(two, "index.json"))
	require.NoError(t, err)
	assert.Equal(t, string(index), string(indexAgain))
}

func TestALayoutHasTheImageAndItsBillOfMaterials(t *testing.T) {
	from := t.TempDir()
	build(t, filepath.Join(from, runtime.GOARCH), "dualpods/cmd/requester", "CGO_ENABLED=0")
	at, digest := written(t, from)
	all, err := layout.ImageIndexFromPath(at)
	require.NoError(t, err)
	index, err := all.ImageIndex(digest)
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 2)

	made := manifest.Manifests[0]
	assert.Equal(t, &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, made.Platform)
	image, err := index.Image(made.Digest)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "65532:65532", config.Config.User)
	assert.Equal(t, []string{"/requester"}, config.Config.Entrypoint)
	assert.Equal(t, "v1", config.Config.Labels["org.opencontainers.image.version"])
	assert.Equal(t, "hotseat requester", config.Config.Labels["org.opencontainers.image.title"])

	bill, err := index.Image(manifest.Manifests[1].Digest)
	require.NoError(t, err)
	of, err := bill.Manifest()
	require.NoError(t, err)
	require.NotNil(t, of.Subject)
	assert.Equal(t, made.Digest, of.Subject.Digest)
	text, err := os.ReadFile(filepath.Join(at, "blobs", "sha256", of.Layers[0].Digest.Hex))
	require.NoError(t, err)
	var bom struct {
		BOMFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	require.NoError(t, json.Unmarshal(text, &bom))
	assert.Equal(t, "CycloneDX", bom.BOMFormat)
	names := map[string]string{}
	for _, c := range bom.Components {
		names[c.Name] = c.Purl
	}
	assert.Contains(t, names, "/requester")
	assert.Equal(t, "pkg:golang/std@"+runtime.Version()[len("go"):], names["std"])
	assert.Contains(t, names["github.com/spf13/pflag"], "pkg:golang/github.com/spf13/pflag@v")
}

func TestAProgramOfAnotherArchitectureIsRefused(t *testing.T) {
	from := t.TempDir()
	build(t, from, "dualpods/cmd/copier", "CGO_ENABLED=0")
	_, err := Product{Name: "copier", Programs: []string{"copier"}}.Image(from, "s390x", "v1")
	require.ErrorContains(t, err, "copier is built for "+runtime.GOARCH+", and the image is for s390x")
	_, err = Product{Name: "launcher", Programs: []string{"launcher"}}.Image(from, runtime.GOARCH, "v1")
	require.ErrorContains(t, err, "the program launcher of image launcher")
}

func TestTheLauncherRunsOnTheOldestCLibraryThatImagesOfVLLMHave(t *testing.T) {
	folder := t.TempDir()
	build(t, folder, "launcher/cmd/launcher", "CGO_ENABLED=1")
	build(t, folder, "dualpods/cmd/copier", "CGO_ENABLED=0")
	needs, err := NeedsGlibc(filepath.Join(folder, "launcher"))
	require.NoError(t, err)
	assert.NotEmpty(t, needs, "it is linked with a C library, for NVML")
	assert.False(t, newer(needs, NewestGlibc), "the launcher needs glibc %s", needs)
	needs, err = NeedsGlibc(filepath.Join(folder, "copier"))
	require.NoError(t, err)
	assert.Empty(t, needs, "it runs where there is no C library")
}

func TestVersionsOfTheCLibraryAreComparedAsNumbers(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		newer bool
	}{
		{"2.34", "", true}, {"", "2.34", false}, {"2.34", "2.34", false}, {"2.38", "2.34", true}, {"2.4", "2.34", false},
		{"2.2.5", "2.34", false}, {"2.34.1", "2.34", true}, {"PRIVATE", "2.34", false}, {"3.0", "2.34", true},
	} {
		assert.Equal(t, c.newer, newer(c.a, c.b), "%q, %q", c.a, c.b)
	}
}

func TestRequesterIsAlsoWherePodsOfTheLLMDCommunityHaveIt(t *testing.T) {
	from := t.TempDir()
	build(t, from, "dualpods/cmd/requester", "CGO_ENABLED=0")
	at := slices.IndexFunc(Products, func(p Product) bool { return p.Name == "requester" })
	image, err := Products[at].Image(from, runtime.GOARCH, "v1")
	require.NoError(t, err)
	made, err := image.Build()
	require.NoError(t, err)
	layers, err := made.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	layer, err := layers[0].Uncompressed()
	require.NoError(t, err)
	defer layer.Close()
	folders, links := map[string]bool{}, map[string]string{}
	for files := tar.NewReader(layer); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch header.Typeflag {
		case tar.TypeDir:
			folders[header.Name] = true
		case tar.TypeSymlink:
			links[header.Name] = header.Linkname
		}
	}
	assert.Equal(t, map[string]string{"app/requester": "/requester"}, links)
	assert.Contains(t, folders, "app/")
}
