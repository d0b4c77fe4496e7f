// Podresources is the program of the agent that the chart runs on each node. It tells
// the controller which devices the kubelet has given to which Pods of the node. It asks
// nobody but the kubelet.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/pflag"

	"hotseat.dev/hotseat/dualpods/internal/launchers/podresources"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// version is set by the linker.
var version = "unknown"

// Little is asked of the program, on many nodes: it trades time for memory.
const (
	mostThreads = 2
	gcPercent   = 25
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), mostThreads))
	debug.SetGCPercent(gcPercent)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

const intro = `podresources tells the controller which devices the kubelet has given to which Pods.
The chart of hotseat runs it on each node.

Usage: podresources [flags]

`

// run serves until SIGTERM or SIGINT; a second one ends the process at once.
func run(args []string, stdout, stderr io.Writer) int {
	opts := podresources.Options{Logger: slog.New(slog.NewTextHandler(stderr, nil))}
	flags := pflag.NewFlagSet("podresources", pflag.ContinueOnError)
	flags.Usage = func() {}
	flags.StringVar(&opts.Listen, "listen", fmt.Sprintf(":%d", podresourcesapi.DefaultPort), "`address` and port to listen on")
	flags.StringVar(&opts.Socket, "socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "`path` of the kubelet's socket of its PodResources API")
	flags.StringVar(&opts.TLS.CertFile, "tls-cert", "", "`file` of the certificate to serve with")
	flags.StringVar(&opts.TLS.KeyFile, "tls-key", "", "`file` of the key of --tls-cert")
	flags.StringVar(&opts.TLS.ClientCAFile, "client-ca", "", "`file` of the certificate authorities that may sign the certificates of clients")
	showVersion := flags.Bool("version", false, "print the version and exit")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q: podresources takes only flags", flags.Arg(0))
	}
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = io.WriteString(stdout, intro+flags.FlagUsages())
		return 0
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "podresources: %v\npodresources --help lists the flags.\n", err)
		return exitUsage
	case *showVersion:
		_, _ = fmt.Fprintln(stdout, version)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop)
	s, err := podresources.New(ctx, opts)
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		opts.Logger.Error("podresources failed", "error", err)
		return exitFailed
	}
	return 0
}
