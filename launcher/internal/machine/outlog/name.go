package outlog

import (
	"net/url"
	"strconv"
	"strings"
)

const suffix = ".log"

// formatName gives the name of the n-th log of an instance: "<id>.<n>.log",
// the id percent-encoded so that it can hold any bytes and still be one name
// in one folder.
func formatName(id string, n int) string {
	return url.PathEscape(id) + "." + strconv.Itoa(n) + suffix
}

// ParseName takes the name of a log file apart into the id of its instance and
// its number, which counts from 1. ok is false for any name that this package
// did not make.
func ParseName(name string) (id string, n int, ok bool) {
	rest, found := strings.CutSuffix(name, suffix)
	dot := strings.LastIndexByte(rest, '.')
	if !found || dot < 1 {
		return "", 0, false
	}
	id, err := url.PathUnescape(rest[:dot])
	if err != nil {
		return "", 0, false
	}
	n, err = strconv.Atoi(rest[dot+1:])
	if err != nil || n < 1 || formatName(id, n) != name {
		return "", 0, false
	}
	return id, n, true
}
