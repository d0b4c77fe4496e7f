// Package browser recognizes requests that a web page makes through somebody's
// browser, which reaches ports that the page's site does not. Requests of other
// clients pass.
package browser

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
)

var (
	protection = http.NewCrossOriginProtection()
	hostname   = sync.OnceValue(func() string {
		name, _ := os.Hostname() // without the name, the machine is called localhost alone
		return name
	})
)

// CheckSite returns an error for a request that a page of another site makes,
// unless the request only reads: the browser keeps the answer from the page.
func CheckSite(r *http.Request) error {
	if protection.Check(r) != nil {
		return errors.New("a page of another site must not call the launcher")
	}
	return nil
}

// CheckName returns an error for a request to this machine's loopback address by
// a name that is not this machine's. A web page can have a name of its own
// resolve to that address (DNS rebinding): to the browser the launcher is then
// the page's own site.
func CheckName(r *http.Request) error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil || !local.IP.IsLoopback() {
		return nil
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	if name == "" || strings.EqualFold(name, "localhost") || strings.EqualFold(name, hostname()) || net.ParseIP(strings.Trim(name, "[]")) != nil {
		return nil
	}
	return fmt.Errorf("the launcher does not answer to the name %.200q: call it as localhost or by its address", name)
}
