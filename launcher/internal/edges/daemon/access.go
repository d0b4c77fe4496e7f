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
	token, err := d.openToken("--token-file", d.opts.TokenFile)
	if err != nil {
		return nil, err
	}
	if certified {
		return api.Certificate{Else: token}, nil
	}
	return token, nil
}

// openToken opens the token file of an option, and warns if everybody can read it.
func (d *Daemon) openToken(option, path string) (*api.TokenFile, error) {
	token, err := api.OpenTokenFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	mode, exposed, err := token.Exposed()
	if exposed && !statedir.InPod() {
		d.log.Warn("EVERY USER OF THIS MACHINE CAN READ THE TOKEN; run chmod o-r", "token_file", path, "mode", fmt.Sprintf("%#o", mode))
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
