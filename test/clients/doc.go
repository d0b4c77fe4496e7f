// Package clients has the front door answer the official OpenAI clients for Python and
// JavaScript, unmodified, while models swap beneath. `make test-clients` installs them from their
// lock files and runs it.
package clients
