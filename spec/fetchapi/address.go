package fetchapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ParseAddress reads the address of a model. It refuses one that may have a credential in
// it: addresses are kept, logged and shown. The error has none of what may be secret.
func ParseAddress(uri string) (*url.URL, error) {
	u, err := url.Parse(uri)
	if escape, ok := errors.AsType[url.EscapeError](err); ok {
		return nil, fmt.Errorf("cannot read the address: %w; a percent sign is written as %%25, a space as %%20", escape)
	}
	if err != nil { // other errors have more of the address in them, and what may be secret there
		return nil, errors.New("cannot read the address: it is as hf://org/name, https://host/path or file:///folder")
	}
	if u.User != nil && !revised(u) {
		return nil, errors.New("the address has a user or a password in it, which would be kept and shown; a credential is given beside the address, by --token-file or as credentials")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the address %s://%s%s has a query or a fragment behind it, which are not known here; a credential is not part of an address", u.Scheme, u.Host, u.EscapedPath())
	}
	return u, nil
}

// revised says that what looks like a user is a model of the hub that no organisation has,
// with its revision, as hf://gpt2@main.
func revised(u *url.URL) bool {
	_, password := u.User.Password()
	return u.Scheme == "hf" && u.Path == "" && !password && !strings.HasPrefix(u.User.Username(), "hf_") // as the hub's tokens begin
}

// CheckAddress is ParseAddress for who needs no more than its error.
func CheckAddress(uri string) error {
	_, err := ParseAddress(uri)
	return err
}

// CheckRef refuses what can be no name of a version, such as a branch or a tag: names
// are shown as files below a folder. None is named by an empty one.
func CheckRef(ref string) error {
	if ref == "" {
		return nil
	}
	if err := CheckPath(ref); err != nil {
		return fmt.Errorf("%q can be no name of a version, such as a branch: %w", ref, err)
	}
	return nil
}
