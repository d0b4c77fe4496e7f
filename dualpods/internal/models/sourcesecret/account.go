package sourcesecret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// byAccount returns the credentials of the one Secret of an account that the source at an
// address can use. The account may list other Secrets, for other sources or for registries.
func (f Found) byAccount(uri string) Shown {
	var fits []Secret
	var says fetchapi.Credentials
	for _, s := range f.Secrets {
		said := s.says(uri)
		if said == nil {
			continue
		}
		if fits = append(fits, s); len(fits) > 1 && !maps.Equal(says, said) {
			return Shown{Of: f.account(), Reason: v1alpha1.ReasonSecretInvalid, Problem: fmt.Sprintf(
				"Secrets %s and %s, which %s lists, have different values of %s: list only one of them, or name it by spec.credentials.secretRef", fits[0].Name, s.Name, f.account(), wanted(uri))}
		}
		says = said
	}
	switch {
	case len(fits) > 0:
		return fits[0].shown("Secret "+f.Namespace+"/"+fits[0].Name+" of "+f.account(), uri)
	case f.Runs:
		return Shown{Of: f.account(), Reason: v1alpha1.ReasonAccountUsed, Note: f.lacks(uri) + ": the Job uses the identity of that account"}
	default:
		return Shown{Of: f.account(), Reason: v1alpha1.ReasonSecretMissing, Problem: f.lacks(uri) + ": list a Secret that has it among the secrets of the account"}
	}
}

// lacks describes which credentials the Secrets of an account lack.
func (f Found) lacks(uri string) string {
	var names []string
	for _, s := range f.Secrets {
		name := s.Name
		if s.Version == "" {
			name += ", which does not exist"
		}
		names = append(names, name)
	}
	if f.More > 0 {
		names = append(names, fmt.Sprintf("and %d more, which are not read", f.More))
	}
	if len(names) == 0 {
		return f.account() + " lists no Secret with " + wanted(uri)
	}
	return fmt.Sprintf("none of the Secrets that %s lists (%s) has %s", f.account(), strings.Join(names, "; "), wanted(uri))
}

// says returns the credentials of a Secret for the source at an address; nil: none.
func (s Secret) says(uri string) fetchapi.Credentials {
	has := s.variables()
	said := fetchapi.FromEnvironment(uri, func(name string) string { return has[name] })
	config, docker := said[dockerVariable]
	if !docker {
		return said
	}
	if login := loginOf(config, registryOf(uri)); login != "" {
		return fetchapi.Credentials{dockerVariable: login}
	}
	return nil
}

// wanted describes the credentials that a source takes.
func wanted(uri string) string {
	switch takes := fetchapi.Takes(uri); takes {
	case dockerVariable:
		return fmt.Sprintf("a login for %s in %s or %s", registryOf(uri), dockerVariable, DockerConfig)
	case "":
		return "credentials for the source, which takes none"
	default:
		return takes
	}
}

// registryOf returns the host of a registry, under which logins are stored, such as ghcr.io
// for oci://ghcr.io/org/model:v1.
func registryOf(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	return hostOf(rest)
}

// hostOf returns the host of a server as docker login and others write it, with or without a
// scheme and a path. Docker's own registry has several names.
func hostOf(server string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://"), "/")
	if slices.Contains(fetchapi.DockerHosts, host) {
		return fetchapi.DockerHosts[0]
	}
	return host
}

// login is an entry of config.json, as docker login writes it.
type login struct {
	Auth          string `json:"auth,omitempty"` // user and password in base64; replaces Username and Password
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"`
	RegistryToken string `json:"registrytoken,omitempty"`
}

// loginOf returns the login for a registry in config.json, in a canonical form; empty: there
// is none.
func loginOf(config, registry string) string {
	var is struct {
		Auths map[string]login `json:"auths"`
	}
	if json.Unmarshal([]byte(config), &is) != nil {
		return ""
	}
	for _, server := range slices.Sorted(maps.Keys(is.Auths)) {
		l := is.Auths[server]
		if hostOf(server) != registry || l == (login{}) { // an empty entry means that a credential helper keeps the login
			continue
		}
		if both, err := base64.StdEncoding.DecodeString(l.Auth); err == nil && l.Auth != "" {
			l.Auth = ""
			l.Username, l.Password, _ = strings.Cut(string(both), ":")
		}
		text, err := json.Marshal(l)
		if err != nil {
			return "" // cannot happen: the login is plain data
		}
		return string(text)
	}
	return ""
}
