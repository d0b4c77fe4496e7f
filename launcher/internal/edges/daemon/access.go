package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/spec/mtls"
)

// openAccess decides who may call; nil: everybody who reaches the port.
func (d *Daemon) openAccess() (api.Access, error) {
	certified := d.opts.tls().ClientCAFile != ""
	if d.opts.TokenFile == "" {
		if certified {
			return api.Certificate{}, nil
		}
		return nil, nil //nolint:nilnil // no rule at all
	}
	token, err := api.OpenTokenFile(d.opts.TokenFile)
	if err != nil {
		return nil, err
	}
	mode, exposed, err := token.Exposed()
	if exposed && !statedir.InPod() {
		d.log.Warn("EVERY USER OF THIS MACHINE CAN READ THE TOKEN; run chmod o-r",
			"token_file", d.opts.TokenFile, "mode", fmt.Sprintf("%#o", mode))
	}
	if certified {
		return api.Certificate{Else: token}, err
	}
	return token, err
}

// secure has the control API served by TLS, where there is a certificate.
func (d *Daemon) secure() error {
	given := d.opts.tls()
	switch {
	case given == mtls.Server{}:
		return nil
	case given.CertFile == "" && given.KeyFile == "":
		return errors.New("--client-ca needs TLS; give the launcher a certificate by --tls-cert and --tls-key")
	case given.CertFile == "" || given.KeyFile == "":
		return errors.New("--tls-cert and --tls-key belong together; give both")
	}
	config, err := given.Config()
	if err != nil {
		return fmt.Errorf("%w; see --tls-cert, --tls-key and --client-ca", err)
	}
	d.listener = tls.NewListener(d.listener, config)
	return nil
}
