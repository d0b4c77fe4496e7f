package modelsource

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// artifact is a model at an OCI registry. Each layer of the artifact is a file, and an
// annotation has its name. It uses the credentials that are given. Without any, it uses
// those that docker login has stored.
type artifact struct {
	uri    string
	repo   *remote.Repository
	remedy string // where a credential for the registry is taken from
	layers []ocispec.Descriptor
	files  []fetchapi.File
	// fileOf returns the name of a layer's file; "": the layer is not a file of the model.
	// before is the number of layers of the same type before it.
	fileOf func(layer ocispec.Descriptor, before int) (string, error)
}

// The annotations with the file name of a layer: ORAS and most others
// (https://github.com/opencontainers/image-spec/blob/v1.1.1/annotations.md), and ModelPack
// (https://github.com/modelpack/model-spec/blob/main/docs/annotations.md).
const (
	titleAnnotation = ocispec.AnnotationTitle
	modelPackPath   = "org.cncf.model.filepath"
)

func newArtifact(uri string, o Options) (Source, error) {
	reference, err := registry.ParseReference(strings.TrimPrefix(uri, "oci://"))
	if err != nil || reference.Repository == "" {
		return nil, invalid("the address %q names no artifact; write it as oci://registry/repository:tag or oci://registry/repository@sha256:digest", uri)
	}
	if reference.Reference == "" {
		reference.Reference = "latest"
	}
	return newModelAt(reference, "oci://"+reference.String(), titled, o)
}

// newModelAt returns the model at a registry, with its canonical address. fileOf names the
// files of the layers.
func newModelAt(reference registry.Reference, uri string, fileOf func(layer ocispec.Descriptor, before int) (string, error), o Options) (*artifact, error) {
	repo := &remote.Repository{Reference: reference}
	host, _, err := net.SplitHostPort(reference.Registry)
	if err != nil {
		host = reference.Registry
	}
	ip := net.ParseIP(host)
	repo.PlainHTTP = host == "localhost" || ip != nil && ip.IsLoopback()
	via := newNoting(o.Stall)
	reach := via.base
	via.base = func(req *http.Request) (*http.Response, error) { // the check holds for the registry's token service too
		if err := encrypted(req.URL); err != nil {
			return nil, err
		}
		return reach(req)
	}
	s := &artifact{uri: uri, repo: repo, fileOf: fileOf}
	s.remedy = o.remedy(fmt.Sprintf("a credential is taken from where `docker login %s` puts it, the file config.json in DOCKER_CONFIG or ~/.docker", reference.Registry))
	logins, err := s.logins(o.Credentials)
	if err != nil {
		return nil, err
	}
	repo.Client = &auth.Client{Client: &http.Client{Transport: via, CheckRedirect: redirected}, Cache: auth.NewCache(), Credential: credentials.Credential(logins)}
	if o.Token != "" {
		return nil, invalid("a token can be used only for https and the hub; %s", s.remedy)
	}
	return s, nil
}

// logins returns the logins that docker login has stored, or those that are given in the
// same form.
func (s *artifact) logins(given fetchapi.Credentials) (credentials.Store, error) {
	if given == nil {
		logins, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
		if err != nil {
			return nil, reasonf(fetchapi.ReasonAccessDenied, "cannot read the credential: %v; %s", err, s.remedy)
		}
		return logins, nil
	}
	logins, err := credentials.NewMemoryStoreFromDockerConfig([]byte(given["DOCKER_AUTH_CONFIG"]))
	if err != nil { // the text of the error may have a part of the credential
		return nil, reasonf(fetchapi.ReasonAccessDenied, "DOCKER_AUTH_CONFIG is not the JSON that docker login writes into config.json")
	}
	ctx, host := context.Background(), s.repo.Reference.Registry
	address := credentials.ServerAddressFromRegistry(host) // the key of this registry's login
	if address != host {
		// The key for Docker's own registry is an address with a path, but logins are stored
		// by host.
		var kept auth.Credential
		var errs []error
		for _, name := range fetchapi.DockerHosts {
			is, err := logins.Get(ctx, name)
			errs = append(errs, err)
			kept = cmp.Or(kept, is)
		}
		if err = errors.Join(append(errs, logins.Put(ctx, address, kept))...); err != nil {
			return nil, reasonf(fetchapi.ReasonAccessDenied, "cannot read the credential: %v; %s", err, s.remedy)
		}
	}
	login, err := logins.Get(ctx, address)
	if err != nil || login == auth.EmptyCredential {
		return nil, reasonf(fetchapi.ReasonAccessDenied, "DOCKER_AUTH_CONFIG has no credential for %s among its auths", host)
	}
	return logins, nil
}

// maxManifest bounds the bytes of a manifest; registries accept 4 MiB
// (https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#pushing-manifests).
const maxManifest = 4 << 20

func (s *artifact) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	ctx, call := newCall(ctx, s.remedy)
	call.bounded = true
	is, body, err := s.repo.FetchReference(ctx, s.repo.Reference.Reference)
	if err != nil {
		return nil, call.error(ctx, err)
	}
	defer body.Close()
	if is.Size > maxManifest {
		return nil, invalid("the manifest of %s has %d bytes, more than the limit of %d", s.uri, is.Size, maxManifest)
	}
	text, err := content.ReadAll(body, is) // it checks the digest
	if broken := call.brokenOff(); broken != nil {
		return nil, call.error(ctx, broken)
	}
	if err != nil {
		return nil, reasonf(fetchapi.ReasonIntegrityMismatch, "cannot read the manifest of %s: %v", s.uri, err)
	}
	if !utf8.Valid(text) {
		return nil, invalid("the manifest of %s is not UTF-8", s.uri)
	}
	if is.MediaType == ocispec.MediaTypeImageIndex {
		return nil, invalid("%s is an index of several artifacts; address one of them by its digest", s.uri)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, invalid("cannot read the manifest of %s: %v", s.uri, err)
	}
	s.layers, s.files = nil, nil
	before := map[string]int{}
	for _, layer := range manifest.Layers {
		name, err := s.fileOf(layer, before[layer.MediaType])
		before[layer.MediaType]++
		if err != nil {
			return nil, invalid("cannot fetch %s: %v", s.uri, err)
		}
		hash, known := strings.CutPrefix(layer.Digest.String(), "sha256:")
		switch {
		case name == "":
			continue
		case !known:
			return nil, invalid("%s of %s has the digest %s, but modelfetch knows only sha256", name, s.uri, layer.Digest)
		}
		s.layers = append(s.layers, layer)
		s.files = append(s.files, fetchapi.File{Path: name, Size: layer.Size, SHA256: hash})
	}
	if len(s.files) == 0 {
		return nil, invalid("%s has no files of a model", s.uri)
	}
	return &fetchapi.Manifest{URI: s.uri, Revision: is.Digest.Encoded(), Files: s.files}, nil
}

// titled names the file of a layer by its annotations.
func titled(layer ocispec.Descriptor, _ int) (string, error) {
	name := cmp.Or(layer.Annotations[modelPackPath], layer.Annotations[titleAnnotation])
	switch {
	case name == "":
		return "", fmt.Errorf("a layer has no file name in the annotations %s or %s: the layers of this artifact are not files", titleAnnotation, modelPackPath)
	case layer.Annotations[unpack] == "true" || archive.MatchString(layer.MediaType):
		return "", fmt.Errorf("%s is an archive, which modelfetch does not unpack: push the files themselves", name)
	}
	return name, nil
}

// Resumes reports that a fetch may go on: each file is named by its digest.
func (s *artifact) Resumes() bool { return true }

// archive is the type of a layer that is one, such as
// application/vnd.cncf.model.weight.v1.tar+gzip.
var archive = regexp.MustCompile(`[./+-]tar([.+]|$)`)

// unpack is how ORAS marks a layer that is a folder, as an archive.
const unpack = "io.deis.oras.content.unpack"

// Open sends the request for the layer itself: oras-go would first request the layer from
// the beginning, and only then the rest.
func (s *artifact) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	ctx, call := newCall(ctx, s.remedy)
	at, layer := s.repo.Reference, s.layers[n]
	ctx = auth.AppendRepositoryScope(ctx, at, auth.ActionPull)
	scheme := "https"
	if s.repo.PlainHTTP {
		scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s://%s/v2/%s/blobs/%s", scheme, at.Host(), at.Repository, layer.Digest), http.NoBody)
	if err != nil {
		return nil, invalid("cannot ask for a layer of %s: %v", s.uri, err)
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := s.repo.Client.Do(req)
	if err != nil {
		return nil, call.error(ctx, err)
	}
	if err := checkEncoding(resp.Header, resp.Request.URL); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	body := reading{resp.Body, ctx, call}
	switch resp.StatusCode {
	case http.StatusOK:
		return &Stream{ReadCloser: body, Size: resp.ContentLength}, nil
	case http.StatusPartialContent:
		if first, size, ok := contentRange(resp.Header.Get("Content-Range")); ok && first == offset {
			return &Stream{ReadCloser: body, Offset: first, Size: size}, nil
		}
		_ = resp.Body.Close()
		if offset > 0 {
			return s.Open(ctx, n, 0)
		}
		return nil, wrongPart(offset, resp.Header)
	case http.StatusRequestedRangeNotSatisfiable:
		if offset > 0 { // the registry cannot begin there
			_ = resp.Body.Close()
			return s.Open(ctx, n, 0)
		}
	}
	_ = resp.Body.Close()
	return nil, call.error(ctx, errors.New(resp.Status))
}
