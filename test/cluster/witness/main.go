// Witness runs in Pods of the cluster's tests and says over HTTP, on port 8080,
// what it sees: its environment, and what another address answers.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	client := &http.Client{Timeout: 20 * time.Second}
	http.HandleFunc("GET /env", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, os.Getenv(r.FormValue("name"))) // the client may be gone
	})
	http.HandleFunc("GET /get", func(w http.ResponseWriter, r *http.Request) {
		resp, err := client.Get(r.FormValue("url"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(w, resp.Body) // the client may be gone
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":8080", nil))
	os.Exit(1)
}
