package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/spec/mtls"
)

// Where commands look for the launcher without flags.
const (
	envServer     = "HOTSEAT_SERVER"
	envTokenFile  = "HOTSEAT_TOKEN_FILE"
	envToken      = "HOTSEAT_TOKEN"
	envServerCA   = "HOTSEAT_SERVER_CA"
	envClientCert = "HOTSEAT_CLIENT_CERT"
	envClientKey  = "HOTSEAT_CLIENT_KEY"
	defaultServer = "http://127.0.0.1:8001"
)

// remote makes cmd a command that calls a launcher. A command that is interrupted
// ends with 130 or 143; the launcher goes on with the call.
func (c *cli) remote(cmd *cobra.Command, run func(ctx context.Context, cl *client.Client, args []string) error) *cobra.Command {
	c.connectionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		err = run(ctx, cl, args)
		if by, ok := errors.AsType[*interruptedError](context.Cause(ctx)); ok && err != nil {
			if c.asksOnly {
				return &exitError{code: 128 + int(by.signal), cause: errors.New("interrupted")}
			}
			return &exitError{code: 128 + int(by.signal), cause: by}
		}
		return nameInstances(ctx, cl, err)
	}
	return cmd
}

// connectionFlags adds the flags that say how the launcher is reached. They may stand
// before the command too.
func (c *cli) connectionFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.server, "server", "", fmt.Sprintf("`ADDRESS` of the launcher (environment %s; default %s)", envServer, defaultServer))
	flags.StringVar(&c.tokenFile, "token-file", "", fmt.Sprintf("`FILE` with the token that the launcher asks for (environment %s, or the token itself in %s)", envTokenFile, envToken))
	flags.StringVar(&c.serverCA, "server-ca", "", fmt.Sprintf("`FILE` with the certificates of the authorities that sign the launcher's certificate (environment %s; default: the system's)", envServerCA))
	flags.StringVar(&c.clientCert, "client-cert", "", fmt.Sprintf("`FILE` with the certificate to show to the launcher (environment %s)", envClientCert))
	flags.StringVar(&c.clientKey, "client-key", "", fmt.Sprintf("`FILE` with the key of that certificate (environment %s)", envClientKey))
	for _, name := range []string{"server", "token-file", "server-ca", "client-cert", "client-key"} {
		if err := flags.SetAnnotation(name, config.FlagGroup, []string{connectionGroup}); err != nil {
			panic(err) // the flag does not exist
		}
	}
}

// interruptedError is why a command's context ended.
type interruptedError struct{ signal syscall.Signal }

func (e *interruptedError) Error() string {
	return "interrupted; the launcher continues with the request"
}

// interruptible ends the context at SIGINT or SIGTERM.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case sig := <-signals:
			cancel(&interruptedError{sig.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		<-done
	}
}

// client speaks to the launcher that flags and environment name.
func (c *cli) client() (*client.Client, error) {
	server := cmp.Or(c.server, os.Getenv(envServer), defaultServer)
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	secured, err := c.tls()
	if err != nil {
		return nil, err
	}
	cl, err := client.New(client.Options{Server: server, Token: token, TLS: secured, Reconnect: cmp.Or(c.reconnect, defaultReconnect), Lost: c.tellLost})
	if err != nil {
		return nil, usagef("%w; --server takes an address such as %s", err, defaultServer)
	}
	return cl, nil
}

// defaultReconnect is how long a command tries to make a connection again that
// broke off: longer than init, systemd or a container take to run a launcher again.
const defaultReconnect = time.Minute

// tellLost says that the stream of the command has broken off.
func (c *cli) tellLost(err error) {
	if c.follows {
		_, _ = fmt.Fprintf(c.err, "launcher: the connection to the launcher broke off: %s; trying again for %s\n",
			visible(err.Error()), cmp.Or(c.reconnect, defaultReconnect))
	}
}

// tls configures calls of an https address.
func (c *cli) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := cmp.Or(c.serverCA, os.Getenv(envServerCA)); file != "" {
		pool, err := mtls.ReadPool(file)
		if err != nil {
			return nil, usagef("%w; --server-ca names its file", err)
		}
		config.RootCAs = pool
	}
	cert, key := cmp.Or(c.clientCert, os.Getenv(envClientCert)), cmp.Or(c.clientKey, os.Getenv(envClientKey))
	if cert == "" && key == "" {
		return config, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, usagef("cannot read the client certificate: %w; --client-cert and --client-key name its files", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// token reads the token to send; empty: none was given.
func (c *cli) token() (string, error) {
	file := cmp.Or(c.tokenFile, os.Getenv(envTokenFile))
	if c.tokenFile == "" && os.Getenv(envToken) != "" {
		return os.Getenv(envToken), nil
	}
	if file == "" {
		return "", nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", usagef("cannot read the token: %w; --token-file names its file", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// explain says on standard error what went wrong, and all that the launcher
// told about it.
func (c *cli) explain(err error) {
	hint := ""
	if _, ok := errors.AsType[*url.Error](err); ok {
		hint = "; is the launcher running there? --server or " + envServer + " names another address"
	}
	_, _ = fmt.Fprintf(c.err, "launcher: %s%s\n", visible(strings.ReplaceAll(err.Error(), "\n", "; ")), hint)
	problem, ok := errors.AsType[*launcher.Error](err)
	if !ok {
		return
	}
	if problem.FailureCause != "" {
		_, _ = fmt.Fprintf(c.err, "  cause: %s\n", visible(problem.FailureCause))
	}
	if problem.ExitCode != nil {
		_, _ = fmt.Fprintf(c.err, "  exit code: %d\n", *problem.ExitCode)
	}
	if len(problem.LastLogLines) > 0 {
		_, _ = fmt.Fprintln(c.err, "  the last lines of its log:")
	}
	for _, line := range problem.LastLogLines {
		_, _ = fmt.Fprintf(c.err, "  | %s\n", visible(line))
	}
	if undone, ok := errors.AsType[*client.UndoneError](err); ok && len(undone.Result.Out) > 0 {
		word := strings.ReplaceAll(undone.Result.Outcome, "_", " ") // undone, or undo failed
		_, _ = fmt.Fprintf(c.err, "  %s: %s\n", word, visible(strings.Join(states(undone.Result.Out), ", ")))
	}
}
