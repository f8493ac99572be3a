package admin

import (
	"onebit/extensions"
	"onebit/store"
)

// owned chooses whose conversations.
type owned struct {
	Key    string `json:"-" query:"key" about:"those of this key"`
	Person string `json:"-" query:"person" about:"those of this person and of all their keys"`
}

func (o owned) has(of extensions.Owner) bool {
	return (o.Key == "" || of.Key == o.Key) && (o.Key != "" || o.Person == "" || of.Person == o.Person)
}

func (a *Admin) conversationRoutes() []route {
	return []route{
		op("DELETE", "/conversations", admins, "forget where conversations are: all, or those that the parameters choose; each is decided anew", func(c *call, in owned) (deleted, error) {
			n, err := a.cfg.Store.DeleteConversations(c.ctx(), c.actor(), store.Actor{Key: in.Key, Person: in.Person})
			if err != nil {
				return deleted{}, err
			}
			a.cfg.Extensions.Forget(in.has)
			return deleted{n}, nil
		}),
	}
}
