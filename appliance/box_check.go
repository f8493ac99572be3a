package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"onebit/appliance/catalog"
	"onebit/appliance/config"
	"onebit/appliance/route"
)

// lookAround finds what is wrong with a configuration in view of this machine: what a box does not start with, and what it starts
// without. A box does the same at its start, by the same code where that asks nobody else.
func (o boxOptions) lookAround(cfg config.Box, from config.Origins) (wrong, odd config.ProblemsError) {
	note := func(to *config.ProblemsError, path string, err error) {
		if err == nil {
			return
		}
		where, ok := from[path]
		if !ok {
			where = o.path()
		}
		*to = append(*to, config.Problem{Where: where, Text: path + ": " + err.Error()})
	}
	if file := cfg.Extensions.RoutePolicy; file != "" {
		_, err := route.ReadPolicy(file)
		note(&wrong, "extensions.route_policy", err)
	}
	if option := cfg.Extensions.LayaModel; option != "" {
		_, err := layaSource(option)
		note(&wrong, "extensions.laya_model", err)
	}
	note(&wrong, "tls.certificate", ownCertificate(cfg.TLS))
	note(&wrong, "tls.acme.root", ownAuthority(cfg.TLS))
	note(&odd, "backup.folder", cmp.Or(wanderingCopies(cfg.Backup), missingCopies(cfg.Backup)))
	b := box{options: o, models: catalog.Cache{Dir: modelsIn(o.state)}}
	for i, m := range cfg.Models {
		path := fmt.Sprintf("models[%d]", i)
		if !m.Elsewhere() {
			if _, why := b.find(cfg, m.File); why != "" {
				note(&odd, path+".file", errors.New(why+untilThen))
			}
			continue
		}
		if _, _, err := remoteConfig(cfg, m); err != nil {
			if e, ok := errors.AsType[*remoteError](err); ok {
				path += ".remote." + e.field
				err = fmt.Errorf("%w%s", err, remedies[e.field])
			}
			note(&odd, path, fmt.Errorf("%w%s", err, untilThen))
		}
	}
	return wrong, odd
}

// untilThen says what comes of a model that cannot be had.
const untilThen = "; until that is right and the configuration is read again the box serves the rest"

// remedies say what to do about a setting of a model that another server runs, where its error does not.
var remedies = map[string]string{
	"key_file": "; write the key that the other server wants into that file, in one line",
	"root":     "; put the other server's root there (a box has it on its trust page), or take the line out for the system's authorities",
}

// modelsIn is where a box keeps the models that it has fetched.
func modelsIn(state string) string { return filepath.Join(state, "models") }

// ownCertificate says what is wrong with a certificate of the operator's.
func ownCertificate(t config.TLS) error {
	if t.Mode != "files" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(t.Certificate, t.Key); err != nil {
		return fmt.Errorf("with tls.key it is no certificate: %w", err)
	}
	return nil
}

// ownAuthority says what is wrong with the root of an authority.
func ownAuthority(t config.TLS) error {
	if t.Mode != "acme" || t.ACME.Root == "" {
		return nil
	}
	text, err := readUpTo(t.ACME.Root, maxRoot)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s holds no certificate", t.ACME.Root)
	}
	return err
}

// wanderingCopies says that the folder of copies depends on where the box is started.
func wanderingCopies(c config.Backup) error {
	if c.Folder == "" || filepath.IsAbs(c.Folder) {
		return nil
	}
	return fmt.Errorf("%q is not a whole path: the copies go to another place with each folder that the box is started in; write it from the root on", c.Folder)
}

// missingCopies says that there is no folder for the copies. A box makes none, so that nothing is copied beside a drive that is
// away; what it says at its run is in its status, with each try.
func missingCopies(c config.Backup) error {
	if c.Folder == "" {
		return nil
	}
	switch at, err := os.Stat(c.Folder); {
	case err != nil:
		return fmt.Errorf("%w; a box does not make it, since it may be a drive that is away: until it is there no copies are made", err)
	case !at.IsDir():
		return fmt.Errorf("%s is not a folder: no copies are made", c.Folder)
	}
	return nil
}
