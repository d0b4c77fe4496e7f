package modelsource

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// artifact is a model at an OCI registry: an artifact each of whose layers is a file,
// named by an annotation. Whom the registry lets read is what docker login has noted.
type artifact struct {
	uri    string
	repo   *remote.Repository
	layers []ocispec.Descriptor
	files  []fetchapi.File
}

// What names the file that a layer is: ORAS and most others
// (https://github.com/opencontainers/image-spec/blob/v1.1.1/annotations.md), and ModelPack
// (https://github.com/modelpack/model-spec/blob/main/docs/annotations.md).
const (
	titleAnnotation = ocispec.AnnotationTitle
	modelPackPath   = "org.cncf.model.filepath"
)

func newArtifact(uri string, o Options) (Source, error) {
	const wrong = "the address %q is not that of an artifact; it is as oci://registry/repository:tag or oci://registry/repository@sha256:digest"
	reference, err := registry.ParseReference(strings.TrimPrefix(uri, "oci://"))
	if err != nil || reference.Repository == "" {
		return nil, invalid(wrong, uri)
	}
	if reference.Reference == "" {
		reference.Reference = "latest"
	}
	repo, err := remote.NewRepository(reference.Registry + "/" + reference.Repository)
	if err != nil {
		return nil, invalid(wrong, uri)
	}
	repo.Reference = reference
	host, _, err := net.SplitHostPort(reference.Registry)
	if err != nil {
		host = reference.Registry
	}
	ip := net.ParseIP(host)
	repo.PlainHTTP = host == "localhost" || ip != nil && ip.IsLoopback()
	transport := &noting{http.DefaultTransport.(*http.Transport).Clone().RoundTrip, o.Stall}
	client := &auth.Client{Client: &http.Client{Transport: transport}, Cache: auth.NewCache()}
	if logins, err := credentials.NewStoreFromDocker(credentials.StoreOptions{}); err == nil {
		client.Credential = credentials.Credential(logins)
	}
	repo.Client = client
	return &artifact{uri: "oci://" + reference.String(), repo: repo}, nil
}

// maxManifest bounds what is read of a manifest; registries take 4 MiB
// (https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#pushing-manifests).
const maxManifest = 4 << 20

func (s *artifact) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	ctx, last := withLast(ctx)
	is, body, err := s.repo.FetchReference(ctx, s.repo.Reference.Reference)
	if err != nil {
		return nil, last.error(ctx, err)
	}
	defer body.Close()
	if is.Size > maxManifest {
		return nil, invalid("the manifest of %s has %d bytes; at most %d are taken", s.uri, is.Size, maxManifest)
	}
	text, err := content.ReadAll(body, is) // which compares its digest
	if err != nil {
		return nil, reasonf(fetchapi.ReasonIntegrityMismatch, "cannot read the manifest of %s: %v", s.uri, err)
	}
	if is.MediaType == ocispec.MediaTypeImageIndex {
		return nil, invalid("%s is an index of several artifacts; name one of them by its digest", s.uri)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, invalid("cannot read the manifest of %s: %v", s.uri, err)
	}
	s.layers, s.files = nil, nil
	for _, layer := range manifest.Layers {
		name := layer.Annotations[modelPackPath]
		if name == "" {
			name = layer.Annotations[titleAnnotation]
		}
		hash, known := strings.CutPrefix(layer.Digest.String(), "sha256:")
		switch {
		case name == "":
			return nil, invalid("a layer of %s has no name in %s or %s: it is no artifact whose layers are files", s.uri, titleAnnotation, modelPackPath)
		case layer.Annotations[unpack] == "true" || strings.Contains(layer.MediaType, "tar"):
			return nil, invalid("%s of %s is an archive, which is not unpacked here: push the files themselves", name, s.uri)
		case !known:
			return nil, invalid("%s of %s has the digest %s, and only sha256 is known here", name, s.uri, layer.Digest)
		}
		s.layers = append(s.layers, layer)
		s.files = append(s.files, fetchapi.File{Path: name, Size: layer.Size, SHA256: hash})
	}
	return &fetchapi.Manifest{URI: s.uri, Revision: is.Digest.Encoded(), Files: s.files}, nil
}

// unpack is how ORAS marks a layer that is a folder, as an archive.
const unpack = "io.deis.oras.content.unpack"

func (s *artifact) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	ctx, last := withLast(ctx)
	body, err := s.repo.Blobs().Fetch(ctx, s.layers[n])
	if err != nil {
		return nil, last.error(ctx, err)
	}
	if seeker, ok := body.(io.Seeker); ok && offset > 0 {
		if _, err := seeker.Seek(offset, io.SeekStart); err != nil { // asks the registry for the rest
			return nil, errors.Join(last.error(ctx, err), body.Close())
		}
	} else {
		offset = 0
	}
	return &Stream{ReadCloser: reading{body, ctx}, Offset: offset, Size: s.layers[n].Size}, nil
}
