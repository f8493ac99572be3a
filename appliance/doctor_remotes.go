package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"onebit/appliance/config"
	"onebit/appliance/doctor"
	"onebit/appliance/remote"
)

// otherServers are looks at the servers that run models of a box, by its configuration; none where it has none.
func (o boxOptions) otherServers() (all []func(context.Context) doctor.Check) {
	cfg, _, err := o.read(nil)
	if err != nil {
		what := "it cannot be read: " + err.Error()
		if problems, ok := errors.AsType[config.ProblemsError](err); ok {
			what = counted(len(problems), "mistake") + " in " + o.path()
		}
		return append(all, func(context.Context) doctor.Check {
			return doctor.Check{Name: "configuration", Status: doctor.Warn, Text: what, Remedy: "1bit config check names each mistake, with its line"}
		})
	}
	for _, m := range cfg.Models {
		if m.Elsewhere() {
			all = append(all, func(ctx context.Context) doctor.Check { return otherServer(ctx, cfg, m) })
		}
	}
	return all
}

// otherServer looks at one.
func otherServer(ctx context.Context, cfg config.Box, m config.BoxModel) doctor.Check {
	check := doctor.Check{Name: "remote " + m.Name, Status: doctor.Miss}
	c, _, err := remoteConfig(cfg, m)
	switch {
	case err != nil:
		check.Text, check.Remedy = err.Error(), "1bit config check says what of it is wrong, and where"
		return check
	case m.Remote.Disabled:
		check.Status, check.Text = doctor.OK, "it is disabled: nothing is sent to "+c.URL
		return check
	}
	f := remote.Examine(ctx, c)
	check.Text = f.Host + place(f)
	switch {
	case f.Err != nil:
		check.Text += ": " + f.Err.Error()
		if dns, ok := errors.AsType[*net.DNSError](f.Err); ok { // the rest says the name again and again
			check.Text = f.Host + ": " + dns.Err
		}
		check.Remedy = remedyOf(f, c)
	case f.Missing != "":
		check.Status, check.Text = doctor.Warn, check.Text+accepted(f, c)+"; "+f.Missing
		check.Remedy = "let model: be a name that the server lists; a few servers know more names than they list"
	default:
		check.Status, check.Text = doctor.OK, check.Text+accepted(f, c)
	}
	return check
}

// place says where a name leads.
func place(f remote.Finding) string {
	if len(f.Addresses) == 0 {
		return ""
	}
	all := make([]string, len(f.Addresses))
	for i, a := range f.Addresses {
		all[i] = a.String()
	}
	return " is " + strings.Join(all, ", ")
}

// accepted says what was found right about a server that answers.
func accepted(f remote.Finding, c remote.Config) string {
	words := ", allowed"
	if strings.HasPrefix(c.URL, "https:") {
		words += ", its certificate is good"
	}
	switch {
	case !f.Listed:
		words += "; it has no list of models, so whether it takes the key shows with the first request"
	case !c.Token.Empty():
		words += ", it takes the key"
	}
	return words
}

// remedyOf says what to do about a server.
func remedyOf(f remote.Finding, c remote.Config) string {
	switch f.Step {
	case remote.StepName:
		return "see that the other machine is up and called so; or write its address, or put the name into the hosts file"
	case remote.StepAddress:
		at := f.Host
		if u, err := url.Parse(c.URL); err == nil && u.Port() == "" {
			at += map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
		}
		return fmt.Sprintf("if it is meant to lie in the house: egress: {private: [%q]}", at)
	case remote.StepCertificate:
		return "let root: name the other server's root (a box has it on its trust page), and url: a name that its certificate has"
	case remote.StepKey:
		return "let key_file: or key: hold a key that the other server knows (a box: 1bit key create NAME there)"
	case remote.StepConnection:
		return "see that the server runs and listens there, and that no firewall lies between"
	}
	return "see that url: is where the server's API is, as in https://box.example.org/v1"
}
