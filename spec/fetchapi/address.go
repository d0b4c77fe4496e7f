package fetchapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"hotseat.dev/hotseat/spec/modelref"
)

// ParseAddress reads the address of a model. It refuses an address that may have a
// credential in it, because addresses are stored, logged and shown. The error shows no part
// of the address that may be secret.
func ParseAddress(uri string) (*url.URL, error) {
	given := uri
	if rest, ok := strings.CutPrefix(uri, modelref.OllamaScheme); ok { // a tag is no port
		given = modelref.OllamaScheme + "/" + rest
	}
	u, err := url.Parse(given)
	if escape, ok := errors.AsType[url.EscapeError](err); ok {
		return nil, fmt.Errorf("cannot read the address: %w; a percent sign is written as %%25, a space as %%20", escape)
	}
	if err != nil { // other errors show more of the address, which may be secret
		return nil, errors.New("cannot read the address: write it as hf://org/name, https://host/path or file:///folder")
	}
	if u.User != nil && !revised(u) || u.Scheme == "ollama" && strings.Contains(u.Path, "@") {
		return nil, errors.New("the address has a user or a password in it, which would be stored and shown; give the credential apart from the address, by --token-file or as credentials")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the address %s://%s%s has a query or a fragment, which addresses of models may not have; give a credential apart from the address", u.Scheme, u.Host, u.EscapedPath())
	}
	return u, nil
}

// revised reports whether the part that looks like a user is the name of a model of the
// hub without an organisation, as in hf://gpt2@main.
func revised(u *url.URL) bool {
	_, password := u.User.Password()
	return u.Scheme == "hf" && u.Path == "" && !password && !strings.HasPrefix(u.User.Username(), "hf_") // as the hub's tokens begin
}

// CheckAddress returns the error of ParseAddress.
func CheckAddress(uri string) error {
	_, err := ParseAddress(uri)
	return err
}

// CheckRef refuses a ref that cannot be the name of a version, such as a branch or a tag.
// Refs are files below a folder in the cache of the hub's client. An empty ref means that
// none is given.
func CheckRef(ref string) error {
	if ref == "" {
		return nil
	}
	if err := CheckPath(ref); err != nil {
		return fmt.Errorf("%q cannot be the name of a version, such as a branch: %w", ref, err)
	}
	return nil
}
