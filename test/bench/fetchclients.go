package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"hotseat.dev/hotseat/test/helpers/figures"
)

// byHTTPS are the contests at a server of files, beside curl.
func (b *bench) byHTTPS(folder string) ([]*contest, *site, error) {
	s, err := b.serveHTTPS(folder)
	if err != nil {
		return nil, nil, err
	}
	env := trusting(folder)
	curl := b.client("curl", "curl", "install it")
	var all []*contest
	for _, model := range models {
		c := &contest{name: "HTTPS, " + b.modelName(model)}
		c.clients = append(c.clients, b.pull(env, s.url+"/"+model+"/"), curl.with(func(into string) *exec.Cmd {
			return curling(folder, model, into, s.url+"/"+model, "--cacert", certificate(folder))
		}))
		all = append(all, c)
	}
	return all, s, nil
}

// models are the names of those that are fetched.
var models = []string{"big", "small"}

// trusting has a program trust the bench's server and, as curl by --cacert, nobody
// else.
func trusting(folder string) []string {
	return []string{"SSL_CERT_FILE=" + certificate(folder), "SSL_CERT_DIR=/none"}
}

// modelName says what a model consists of.
func (b *bench) modelName(model string) string {
	if model == "big" {
		return "one file of " + gibOf(float64(b.scaled(bigBytes)))
	}
	return fmt.Sprintf("%d files of %d KiB", smallFiles, smallBytes>>10)
}

// byS3 are those at a server of S3, beside s5cmd.
func (b *bench) byS3(folder string) ([]*contest, *site, error) {
	s, err := b.serveS3(folder)
	if err != nil {
		return nil, nil, err
	}
	env := []string{"AWS_ENDPOINT_URL=" + s.url, "S3_ENDPOINT_URL=" + s.url, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=" + s3User, "AWS_SECRET_ACCESS_KEY=" + s3Secret, "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/none", "AWS_SHARED_CREDENTIALS_FILE=/none"}
	s5cmd := b.client("s5cmd", filepath.Join(b.clients, "s5cmd"), "`make bench-clients` builds it")
	var all []*contest
	for _, model := range models {
		c := &contest{name: "S3, " + b.modelName(model)}
		c.clients = append(c.clients, b.pull(env, "s3://models/"+model),
			s5cmd.with(func(into string) *exec.Cmd {
				cmd := exec.Command(filepath.Join(b.clients, "s5cmd"), "--log", "error", "cp", "s3://models/"+model+"/*", into+"/")
				cmd.Env = append(os.Environ(), env...)
				return cmd
			}))
		all = append(all, c)
	}
	return all, s, nil
}

// pull is the launcher's own command, with the flags that it has by itself.
func (b *bench) pull(env []string, uri string) *fetcher {
	return &fetcher{name: "launcher pull", command: func(into string) *exec.Cmd {
		cmd := exec.Command(b.launcher, "pull", "--model-store", into, uri)
		cmd.Env = append(os.Environ(), env...)
		return cmd
	}}
}

// client is another program, which may not be there.
func (b *bench) client(name, program, remedy string) *fetcher {
	f := &fetcher{name: name}
	if _, err := exec.LookPath(program); err != nil {
		f.missing = err.Error()
		fmt.Fprintf(b.progress, "NOT MEASURED: there is no %s: %v; %s\n", name, err, remedy)
	}
	return f
}

func (f *fetcher) with(command func(into string) *exec.Cmd) *fetcher {
	return &fetcher{name: f.name, missing: f.missing, command: command}
}

// curling has curl fetch the files that a model has in its folder, sixteen at once.
func curling(folder, model, into, address string, flags ...string) *exec.Cmd {
	names, _ := filepath.Glob(filepath.Join(folder, model, "*.safetensors")) // the pattern is right
	var urls strings.Builder
	for _, name := range names {
		fmt.Fprintf(&urls, "url = %s/%s\nremote-name\n", address, filepath.Base(name))
	}
	cmd := exec.Command("curl", append(flags, "--fail", "--silent", "--show-error", "--no-progress-meter", "--parallel", "--parallel-max", "16", "--config", "-")...)
	cmd.Dir, cmd.Stdin = into, strings.NewReader(urls.String())
	return cmd
}

// fastest is the other client with the shortest median until its bytes were on the
// disk; nil: none could be had.
func (c *contest) fastest() (best *fetcher) {
	for _, f := range c.clients[1:] {
		if f.missing == "" && (best == nil || f.synced.P50() < best.synced.P50()) {
			best = f
		}
	}
	return best
}

// renderFetches makes the table of the fetches.
func renderFetches(all []*contest) string {
	var b strings.Builder
	b.WriteString("| fetch | client | samples | until it has ended: median (fastest – slowest), s | until its bytes are on the disk, s | speed beside the fastest other | memory of modelfetch, and of it not of files | target | met |\n")
	b.WriteString("|---|---|---:|---:|---:|---:|---:|---|---|\n")
	for _, c := range all {
		best := c.fastest()
		for n, f := range c.clients {
			if f.missing != "" {
				fmt.Fprintf(&b, "| %s | %s | 0 | cannot be had here | | | | | |\n", c.name, f.name)
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %d | %s | %s |", c.name, f.name, len(f.ended), spread(f.ended), spread(f.synced))
			if n > 0 || best == nil {
				b.WriteString(" | | | |\n")
				continue
			}
			speed := best.synced.P50().Seconds() / f.synced.P50().Seconds()
			fmt.Fprintf(&b, " %.2f× %s | %s, %s | ≥ %.1f×, ≤ %s | %s |\n", speed, best.name, mb(f.memory), mb(f.own), besideOthers, mb(fetchMemory), figures.Verdict(speed >= besideOthers && f.light()))
		}
	}
	return b.String()
}
