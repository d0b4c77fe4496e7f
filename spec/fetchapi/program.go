package fetchapi

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A program can be the source of models for its own scheme. modelfetch asks it which files
// a model has, and for the content of the files. The files are checked, admitted, resumed
// and published like those of any other source. modelfetch runs the program once for each
// question, with the question as its arguments:
//
//	PROGRAM resolve URI                        →   manifest: its revision and its files
//	PROGRAM open URI REVISION PATH OFFSET      →   opened, and the content of the file to descriptor 3
//
// It answers by lines on its standard output, and ends with the status 0. A manifest has
// the revision, and for each file path, size and, if known, sha256. The revision is a name
// without a slash; other content must have another revision:
//
//	{"type": "manifest", "manifest": {"revision": "7", "files": [{"path": "config.json", "size": 2}]}}
//
// Opened says at which byte the content begins: at the offset that was asked for, or at 0
// if the program cannot begin there. In the second case the file is fetched again.
//
//	{"type": "opened", "offset": 1048576}
//
// A note is a message to people. An error says why the program cannot answer, with one of
// the reasons. After Unavailable, modelfetch asks again later; after Changed, it begins
// again with resolve:
//
//	{"type": "note", "text": "waiting for the tape"}
//	{"type": "error", "error": {"reason": "NotFound", "detail": "there is no such model"}}
//
// REVISION is the revision that the program has resolved. If the source has another by now,
// the program answers Changed. Several programs may run at once. modelfetch kills a program
// that it no longer needs, or that writes nothing for as long as --stall-timeout. The
// program's standard input ends when modelfetch does. Its environment is modelfetch's own,
// without the variables that hold credentials of other sources.

// ReasonChanged is a reason of programs only: the source has another revision by now.
const ReasonChanged = "Changed"

// Questions that a program is asked.
const (
	AskResolve = "resolve"
	AskOpen    = "open"
)

// ProgramFlag is the flag that names a program to modelfetch: SCHEME=PATH, once for each.
const ProgramFlag = "source"

// Schemes are reserved for modelfetch's own sources, present and future.
var Schemes = []string{"azblob", "exec", "file", "gs", "hf", "http", "https", "oci", "ollama", "pvc", "s3"}

var isScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// ParseProgram reads the scheme and the program of a source, as SCHEME=PATH.
func ParseProgram(text string) (scheme, path string, err error) {
	scheme, path, found := strings.Cut(text, "=")
	switch {
	case !found || path == "":
		return "", "", fmt.Errorf("must be a scheme and the program that is its source, such as myscheme=/usr/local/bin/program, not %q", text)
	case !isScheme.MatchString(scheme):
		return "", "", fmt.Errorf("%q is no scheme: use lower-case letters, digits and + . -, and begin with a letter", scheme)
	case slices.Contains(Schemes, scheme):
		return "", "", fmt.Errorf("the scheme %s is hotseat's own: choose another, such as my-%s", scheme, scheme)
	}
	return scheme, path, nil
}

// otherCredentials are further variables that may hold credentials of modelfetch's sources,
// or name their files. A call cannot give them.
var otherCredentials = []string{
	"AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_STORAGE_CONNECTION_STRING",
	"DOCKER_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN",
}

// WithoutCredentials returns an environment without the credentials of modelfetch's own
// sources.
func WithoutCredentials(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(otherCredentials, name) ||
			slices.ContainsFunc(slices.Collect(maps.Values(taken)), func(v variables) bool { return v.has(name) })
	})
}
