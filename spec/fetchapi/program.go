package fetchapi

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A program of somebody else's is a source of models for a scheme of its own: modelfetch
// asks it what a model consists of, and for the content of its files. What is fetched is
// checked, admitted, resumed and published as of any other source. The program is run
// once for each question, with the question as its arguments:
//
//	PROGRAM resolve URI                        →   manifest: its revision and its files
//	PROGRAM open URI REVISION PATH OFFSET      →   opened, and the content of the file to descriptor 3
//
// It answers by lines on its standard output, and ends with the status 0. A manifest
// has the revision, a name without a slash that another content never has, and of each
// file path and size, and sha256 where it is known:
//
//	{"type": "manifest", "manifest": {"revision": "7", "files": [{"path": "config.json", "size": 2}]}}
//
// Opened says from which byte on the content is: the offset that was asked for, or 0
// where the program cannot begin there; then the file is fetched anew.
//
//	{"type": "opened", "offset": 1048576}
//
// A note says what people may want to know. An error says why it cannot be, with one of
// the reasons; Unavailable is asked again after a while, Changed begins again with resolve:
//
//	{"type": "note", "text": "waiting for the tape"}
//	{"type": "error", "error": {"reason": "NotFound", "detail": "there is no such model"}}
//
// REVISION is the one that it has resolved; where the source has another by now the
// program says Changed. Several may be asked for at once, and each is killed when no more of it
// is needed, or when it says and writes nothing for as long as --stall-timeout. Its
// standard input ends when modelfetch does. Its environment is modelfetch's own, without
// the variables in which the credentials of other sources are.

// ReasonChanged is a program's alone: its source has another revision by now.
const ReasonChanged = "Changed"

// Questions that a program is asked.
const (
	AskResolve = "resolve"
	AskOpen    = "open"
)

// ProgramFlag is how modelfetch is told of a program: SCHEME=PATH, once for each.
const ProgramFlag = "source"

// Schemes are those that modelfetch has itself, or may have.
var Schemes = []string{"azblob", "exec", "file", "gs", "hf", "http", "https", "oci", "pvc", "s3"}

var isScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// ParseProgram reads the scheme and the program of a source, as SCHEME=PATH.
func ParseProgram(text string) (scheme, path string, err error) {
	scheme, path, found := strings.Cut(text, "=")
	switch {
	case !found || path == "":
		return "", "", fmt.Errorf("must be a scheme and the program that is its source, such as myscheme=/usr/local/bin/program, not %q", text)
	case !isScheme.MatchString(scheme):
		return "", "", fmt.Errorf("%q is no scheme: that is of lower-case letters, digits and + . - and begins with a letter", scheme)
	case slices.Contains(Schemes, scheme):
		return "", "", fmt.Errorf("the scheme %s is hotseat's own: choose another, such as my-%s", scheme, scheme)
	}
	return scheme, path, nil
}

// otherCredentials are variables in which a machine may have credentials of the sources
// of modelfetch, or their files, beside those that a call takes.
var otherCredentials = []string{
	"AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_STORAGE_CONNECTION_STRING",
	"DOCKER_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN",
}

// WithoutCredentials gives the variables of an environment that are no credentials of
// modelfetch's own sources.
func WithoutCredentials(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(otherCredentials, name) ||
			slices.ContainsFunc(slices.Collect(maps.Values(taken)), func(v variables) bool { return v.has(name) })
	})
}
