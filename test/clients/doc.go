// Package clients has the front door answer the official clients of OpenAI for Python and
// JavaScript and of Anthropic and Ollama for Python, unmodified, while models swap beneath.
// `make test-clients` installs them from their lock files and runs it.
package clients
