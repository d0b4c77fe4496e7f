package images

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// sbomType is the media type of a bill of materials in JSON of CycloneDX.
const sbomType = "application/vnd.cyclonedx+json"

// Write makes the product for each architecture, of the programs in the folder
// from/<architecture>, in the place of what to holds: an OCI layout
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md) of one
// index, which has the images and for each its bill of materials, as a manifest
// whose subject is the image. It returns the digest of the index.
func (p Product) Write(from, to, version string, architectures []string) (v1.Hash, error) {
	fail := func(err error) (v1.Hash, error) {
		return v1.Hash{}, fmt.Errorf("cannot make image %s: %w", p.Name, err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range architectures {
		folder := filepath.Join(from, architecture)
		if err := p.checkGlibc(folder); err != nil {
			return fail(err)
		}
		image, err := p.Image(folder, architecture, version)
		if err != nil {
			return fail(err)
		}
		image.Compression = 9
		made, err := image.Build()
		if err != nil {
			return fail(err)
		}
		bill, err := p.bill(image, made, version)
		if err != nil {
			return fail(err)
		}
		platform := &v1.Platform{OS: "linux", Architecture: architecture}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: made, Descriptor: v1.Descriptor{Platform: platform}}, mutate.IndexAddendum{Add: bill})
	}
	digest, err := index.Digest()
	if err != nil {
		return fail(err)
	}
	if err := os.RemoveAll(to); err != nil {
		return fail(err)
	}
	place, err := layout.Write(to, empty.Index)
	if err != nil {
		return fail(err)
	}
	if err := place.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})); err != nil {
		return fail(err)
	}
	return digest, nil
}

// bill is the manifest of an image's bill of materials
// (https://github.com/opencontainers/image-spec/blob/main/manifest.md#guidelines-for-artifact-usage).
func (p Product) bill(image Image, made v1.Image, version string) (v1.Image, error) {
	text, err := BillOfMaterials("hotseat/"+p.Name, version, image)
	if err != nil {
		return nil, err
	}
	subject, err := partial.Descriptor(made)
	if err != nil {
		return nil, err
	}
	bill, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbomType), mutate.Addendum{Layer: static.NewLayer(text, sbomType)})
	if err != nil {
		return nil, err
	}
	return mutate.Subject(bill, *subject).(v1.Image), nil
}
