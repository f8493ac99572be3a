package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"onebit/engine"
)

// named has the name of a model in its path.
type named struct {
	Name string `json:"-" path:"name"`
}

// identified has an id in its path.
type identified struct {
	ID string `json:"-" path:"id"`
}

// table is all operations.
func table(a *Admin) []route {
	all := []route{
		stream("GET", "/openapi.json", everyone, "application/json", "this description", func(c *call, _ struct{}) error {
			b, err := a.OpenAPI()
			if err != nil {
				return err
			}
			c.w.Header().Set("Content-Type", "application/json")
			_, err = c.w.Write(b)
			return err
		}),
		op("GET", "/status", admins, "the box at a glance", func(c *call, _ struct{}) (Status, error) {
			return a.cfg.Box.Status(c.ctx()), nil
		}),
		op("GET", "/routes", everyone, "all that the box answers", func(c *call, _ struct{}) (routeList, error) {
			return routeList{a.cfg.Box.Routes()}, nil
		}),
		op("GET", "/whoami", everyone, "who you are to the box", a.whoami),
		op("GET", "/certificate", everyone, "the certificate that the box shows", func(c *call, _ struct{}) (Certificate, error) {
			return a.cfg.Box.Certificate(), nil
		}),
	}
	all = append(all, a.modelRoutes()...)
	all = append(all, a.keyRoutes()...)
	all = append(all, a.peopleRoutes()...)
	all = append(all, a.logRoutes()...)
	all = append(all, a.extensionRoutes()...)
	all = append(all, a.conversationRoutes()...)
	all = append(all, a.documentRoutes()...)
	return append(all, a.settingRoutes()...)
}

// identity is who calls.
type identity struct {
	Person string `json:"person" about:"id"`
	Name   string `json:"name"`
	Role   string `json:"role"`
	Admin  bool   `json:"admin"`
	By     string `json:"by" about:"key, login or socket"`
}

func (a *Admin) whoami(c *call, _ struct{}) (identity, error) {
	return identity{Person: c.who.Person, Name: c.who.Name, Role: string(c.who.Role), Admin: c.who.Admin, By: c.who.Kind.String()}, nil
}

type routeList struct {
	Routes []RouteInfo `json:"routes"`
}

// models is a list of models.
type models struct {
	Models []Model `json:"models"`
}

func (a *Admin) modelRoutes() []route {
	box := a.cfg.Box
	return []route{
		op("GET", "/models", everyone, "the models of the box; those that you may use", func(c *call, _ struct{}) (models, error) {
			out := models{Models: []Model{}}
			for _, m := range box.Models() {
				if c.who.MayUse(m.Name) {
					if m.Problem != "" && !c.who.Admin { // it may name a folder or a program
						m.Problem = "it cannot be used at the moment; an admin sees why"
					}
					out.Models = append(out.Models, m)
				}
			}
			return out, nil
		}),
		op("POST", "/models", admins, "add a model", func(c *call, in NewModel) (Model, error) {
			in.Name = trimmed(in.Name)
			return box.AddModel(c.ctx(), c.actor(), in)
		}),
		op("PATCH", "/models/{name}", admins, "change a model", func(c *call, in struct {
			named
			ModelChange
		}) (Model, error) {
			return box.ChangeModel(c.ctx(), c.actor(), in.Name, in.ModelChange)
		}),
		op("DELETE", "/models/{name}", admins, "remove a model; its file too when asked for", func(c *call, in struct {
			named
			File bool `json:"-" query:"file" about:"delete the file as well, when the box has downloaded it"`
		}) (none, error) {
			return none{}, box.RemoveModel(c.ctx(), c.actor(), in.Name, in.File)
		}),
		op("POST", "/models/{name}/load", admins, "bring a model into memory", func(c *call, in named) (none, error) {
			return none{}, box.LoadModel(c.ctx(), in.Name)
		}),
		op("POST", "/models/{name}/unload", admins, "take a model out of memory, once it is idle", func(c *call, in named) (none, error) {
			return none{}, box.UnloadModel(c.ctx(), in.Name)
		}),
		op("GET", "/catalog", admins, "model files that the box knows or has found", func(c *call, _ struct{}) (catalogList, error) {
			return catalogList{box.Catalog(c.ctx())}, nil
		}),
		op("GET", "/pulls", admins, "downloads", func(c *call, _ struct{}) (pulls, error) { return pulls{box.Pulls()}, nil }),
		op("POST", "/pulls", admins, "download a model", func(c *call, in NewPull) (Pull, error) {
			return box.StartPull(c.ctx(), c.actor(), in)
		}),
		op("DELETE", "/pulls/{id}", admins, "stop a download; what has come is kept for the next try", func(c *call, in identified) (none, error) {
			return none{}, box.CancelPull(c.ctx(), in.ID)
		}),
		op("GET", "/prompt-cache", admins, "what is kept of prompts, and what it was good for", func(c *call, _ struct{}) (PromptCache, error) {
			return box.PromptCache(), nil
		}),
		op("DELETE", "/prompt-cache", admins, "forget all that is kept of prompts", func(c *call, _ struct{}) (none, error) {
			return none{}, box.ClearPromptCache(c.ctx(), c.actor())
		}),
		op("GET", "/backends", admins, "installed server programs", func(c *call, _ struct{}) (backends, error) {
			return backends{box.Backends(c.ctx())}, nil
		}),
		op("POST", "/backends/{device}/rollback", admins, "return to the version before", func(c *call, in struct {
			Device string `json:"-" path:"device"`
		}) (none, error) {
			return none{}, box.RollbackBackend(c.ctx(), c.actor(), in.Device)
		}),
	}
}

type catalogList struct {
	Files []CatalogEntry `json:"files"`
}

type pulls struct {
	Pulls []Pull `json:"pulls"`
}

type backends struct {
	Backends []Backend `json:"backends"`
}

func (a *Admin) settingRoutes() []route {
	box, s := a.cfg.Box, a.cfg.Store
	return []route{
		op("GET", "/settings", admins, "each value that holds, and where it comes from", func(c *call, _ struct{}) (settings, error) {
			return settings{box.Settings()}, nil
		}),
		op("PATCH", "/settings", admins, "change settings; those that the file, a variable or a flag sets stay", func(c *call, in struct {
			Values map[string]string `json:"values" about:"by name"`
		}) (settings, error) {
			if len(in.Values) == 0 {
				return settings{}, &engine.InvalidError{Param: "values", Code: "missing_required_parameter", Message: `"values" says nothing to change`}
			}
			if err := box.ChangeSettings(c.ctx(), c.actor(), in.Values); err != nil {
				return settings{}, err
			}
			return settings{box.Settings()}, nil
		}),
		op("POST", "/reload", admins, "read the configuration again; when it is wrong the old one stays", func(c *call, _ struct{}) (none, error) {
			return none{}, box.Reload(c.ctx())
		}),
		stream("POST", "/backup", admins, "application/octet-stream", "an encrypted copy of the box's state", func(c *call, in backupRequest) error {
			return a.backup(c, in)
		}),
		op("DELETE", "/degraded", admins, "take the banner about a restored database away", func(c *call, _ struct{}) (none, error) {
			return none{}, s.ClearDegraded(c.ctx(), c.actor())
		}),
	}
}

type settings struct {
	Settings []Setting `json:"settings"`
}

type backupRequest struct {
	Passphrase string `json:"passphrase,omitempty" about:"at least 12 characters; this or a recipient"`
	Recipient  string `json:"recipient,omitempty" about:"an age public key"`
	Authority  bool   `json:"authority,omitempty" about:"with the private key of the box's own root"`
}

// backup writes a copy as it is made. An error after the first byte breaks the connection, so that nobody takes half a
// copy for a whole one; the copy's own manifest says so as well.
func (a *Admin) backup(c *call, in backupRequest) error {
	switch {
	case in.Passphrase == "" && in.Recipient == "":
		return &engine.InvalidError{Param: "passphrase", Code: "missing_required_parameter", Message: "a copy is encrypted: give a passphrase or a recipient"}
	case in.Passphrase != "" && len(in.Passphrase) < 12:
		return &engine.InvalidError{Param: "passphrase", Code: "too_short", Message: "a passphrase has at least 12 characters"}
	}
	o, err := backupOptions(in)
	if err != nil {
		return err
	}
	o.Files = a.cfg.Box.BackupFiles()
	w := &beginner{w: c.w, over: func() error { return context.Cause(c.ctx()) }, begin: func() {
		h := c.w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=\"1bit-%s.backup\"", time.Now().UTC().Format("20060102-150405")))
	}}
	if _, err := a.cfg.Store.Backup(c.ctx(), c.actor(), w, o); err != nil {
		if w.begun {
			a.cfg.Log.Error("a copy broke off", "error", err)
			panic(http.ErrAbortHandler)
		}
		return err
	}
	return nil
}

// beginner sets headers when the first byte comes, and takes none once the request is over.
type beginner struct {
	w     http.ResponseWriter
	begin func()
	over  func() error // why nothing more may be written, or nil
	begun bool
}

func (b *beginner) Write(p []byte) (int, error) {
	if err := b.over(); err != nil {
		return 0, err
	}
	if !b.begun {
		b.begun = true
		b.begin()
	}
	return b.w.Write(p)
}
