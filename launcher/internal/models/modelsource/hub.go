package modelsource

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// hub is a model of the Hugging Face hub, or of a server that answers as it does.
type hub struct {
	*caller
	endpoint    *url.URL
	name, asked string // the revision that was asked for
	commit      string
	files       []fetchapi.File
}

const (
	publicHub = "https://huggingface.co"
)

// The names that the hub gives, and commits.
var (
	hubName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?$`)
	hubCommit = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// maxHubName bounds the bytes of a name: the hub's own client uses the name for a folder.
const maxHubName = 200

func newHub(uri string, o Options) (Source, error) {
	name, revision, named := strings.Cut(strings.TrimPrefix(uri, modelref.HubScheme), "@")
	if !hubName.MatchString(name) || len(name) > maxHubName || strings.Contains(name, "--") || strings.Contains(name, "..") || named && fetchapi.CheckPath(revision) != nil {
		return nil, invalid("the address %q names no model of the hub; write it as hf://org/name or hf://org/name@revision", uri)
	}
	endpoint, err := url.Parse(strings.TrimSuffix(cmp.Or(o.HubEndpoint, publicHub), "/"))
	if err != nil || endpoint.Host == "" {
		return nil, invalid("cannot read HF_ENDPOINT %q as the address of a hub; write it as %s", o.HubEndpoint, publicHub)
	}
	if encrypted(endpoint) != nil {
		return nil, invalid("the hub %s://%s of HF_ENDPOINT is not encrypted; use https://%s", endpoint.Scheme, endpoint.Host, endpoint.Host)
	}
	if o.Credentials != nil {
		o.Token = o.Credentials["HF_TOKEN"]
	}
	return &hub{caller: newCaller(endpoint, o), endpoint: endpoint, name: name, asked: cmp.Or(revision, modelref.MainBranch)}, nil
}

// hubInfo is the hub's answer for a model.
type hubInfo struct {
	SHA      string `json:"sha"`
	Siblings []struct {
		Name   string `json:"rfilename"`
		Size   *int64 `json:"size"`
		BlobID string `json:"blobId"`
		LFS    *struct {
			SHA256 string `json:"sha256"`
			Size   int64  `json:"size"`
		} `json:"lfs"`
	} `json:"siblings"`
}

func (s *hub) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	address := s.endpoint.JoinPath("api/models", s.name, "revision", url.PathEscape(s.asked))
	address.RawQuery = "blobs=true"
	text, err := s.text(ctx, address.String())
	if err != nil {
		return nil, err
	}
	var info hubInfo
	if !utf8.Valid(text) {
		return nil, invalid("the hub's answer for %s is not valid UTF-8", s.name)
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return nil, invalid("cannot decode the hub's answer for %s: %v", s.name, err)
	}
	if !hubCommit.MatchString(info.SHA) {
		return nil, invalid("the hub names %[2]q as the commit of %[1]s, but that is no commit hash", s.name, info.SHA)
	}
	s.commit, s.files = info.SHA, nil
	for _, one := range info.Siblings {
		file := fetchapi.File{Path: one.Name, GitSHA1: one.BlobID}
		switch {
		case one.LFS != nil:
			file.SHA256, file.Size, file.GitSHA1 = one.LFS.SHA256, one.LFS.Size, ""
		case one.Size != nil:
			file.Size = *one.Size
		default:
			return nil, invalid("the hub gives no size for the file %s of %s", one.Name, s.name)
		}
		s.files = append(s.files, file)
	}
	m := &fetchapi.Manifest{URI: modelref.HubScheme + s.name, Revision: s.commit, Files: s.files}
	if s.asked != s.commit {
		m.Ref = s.asked
	}
	return m, nil
}

// Resumes reports that a fetch may go on: each file is named by its commit.
func (s *hub) Resumes() bool { return true }

func (s *hub) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	address := s.endpoint.JoinPath(s.name, "resolve", s.commit, escaped(s.files[n].Path))
	return s.open(ctx, address.String(), offset, version{})
}
