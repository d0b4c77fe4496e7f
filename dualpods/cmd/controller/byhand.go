package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
)

// What administrators run.

func clientCertificateCommand() *cobra.Command {
	var named string
	var life time.Duration
	var c *cobra.Command
	c = hook("client-certificate", "Print a client certificate, its key and the authorities, for calls to launchers and requesters by hand", func(ctx context.Context, api client.Client) error {
		namespace, err := authority.Namespace(named)
		if err != nil {
			return err
		}
		now, err := authority.Read(ctx, api, namespace)
		if err != nil {
			return err
		}
		text, until, err := now.ByHand(life, time.Now())
		if err != nil {
			return err
		}
		if _, err := c.OutOrStdout().Write(text); err != nil {
			return fmt.Errorf("cannot print the certificate: %w", err)
		}
		_, err = fmt.Fprintf(c.ErrOrStderr(), "Keep it secret: it gives control of every launcher and requester until %s.\n", until.UTC().Format(time.RFC3339))
		return err
	})
	c.Example = `  controller client-certificate >hotseat.pem
  curl --cert hotseat.pem --cacert hotseat.pem --connect-to ::POD_IP:8001 https://LAUNCHERCONFIG.NAMESPACE.launchers.hotseat.dev/v2/vllm/instances`
	c.Flags().StringVar(&named, "ca-namespace", "", "namespace of the Secret hotseat-ca, which has the certificate authority; empty: this Pod's own")
	c.Flags().DurationVar(&life, "life", time.Hour, "how long the certificate is valid; at most 24h")
	return c
}
