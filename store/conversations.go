package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"onebit/store/sqlite"
)

// Conversation is where a conversation is served, and what was decided for it.
type Conversation struct {
	ID         string   // 32 hexadecimal digits
	Names      []string // such digits, by each of which it is found; the latest last. Those that it had before stay
	Owner      Actor    // the key that talks, or the person without one; written, never read: kept as a hash
	Place      string   // a model
	Class      string
	Confidence float64
	Module     string // that decided
	Tokens     int64  // of the prompt and the answer of its last turn
	Turns      int64
	Until      time.Time // the decision holds; zero: for as long as it is kept
	First      time.Time
	Used       time.Time
	Detail     json.RawMessage // in the form of whoever keeps it
}

const (
	// MaxNames is by how many names a conversation is found: the latest.
	MaxNames = 8

	// MaxConversationDetail is how long the detail of a conversation may be, in bytes.
	MaxConversationDetail = 32 << 10

	conversationsKept = 100_000
	conversationsTrim = 256 // so many may be more before the oldest go
)

const (
	conversationColumns = "id, scope, place, class, confidence, module, tokens, turns, until, first, used, detail"
	// of a key or a person that has gone nothing is kept
	putConversation = "insert into conversations(" + conversationColumns + `) select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12
		where (?13 = '' or exists (select 1 from keys where id = ?13)) and (?14 = '' or exists (select 1 from people where id = ?14))
		on conflict(id) do update set place = excluded.place, class = excluded.class, confidence = excluded.confidence, module = excluded.module,
			tokens = excluded.tokens, turns = excluded.turns, until = excluded.until, used = excluded.used, detail = excluded.detail
			where scope = excluded.scope`
	putConversationName = `insert into conversation_names(name, conversation, at) select ?1, n, ?3 from conversations where id = ?2
		on conflict(name) do update set conversation = excluded.conversation, at = excluded.at`
	trimConversationNames = `delete from conversation_names where name in (select name from conversation_names
		where conversation = (select n from conversations where id = ?1) order by at desc, name limit -1 offset ?2)`
	conversationHolders = "select scope, count(*) from conversations group by scope order by 2 desc"
	trimHolder          = "delete from conversations where n in (select n from conversations where scope = ? order by used, n limit ?)"
	// the oldest of each that holds so many, the oldest first
	trimHolders = `delete from conversations where n in (select n from (select n, min(used) as used from conversations group by scope having count(*) >= ?)
		order by used, n limit ?)`
	// the first of the names that is known
	findConversation = `select c.n, c.id, c.place, c.class, c.confidence, c.module, c.tokens, c.turns, c.until, c.first, c.used, c.detail
		from json_each(?1) j join conversations c on c.n = coalesce((select conversation from conversation_names where name = unhex(j.value)),
			(select n from conversations where id = unhex(j.value)))
		order by j.key limit 1`
	namesOfConversation      = "select name from conversation_names where conversation = ? order by at, name"
	deleteScopeConversations = "delete from conversations where scope = ?"
	deleteAllConversations   = "delete from conversations"
	keysOfPerson             = "select id from keys where owner = ?"
	countConversations       = "select count(*) from conversations"
)

// scope is whose a conversation is, as a hash: of the key where there is one, else of the person.
func (a Actor) scope() []byte {
	text := "person\x00" + a.Person
	if a.Key != "" {
		text = "key\x00" + a.Key
	}
	sum := sha256.Sum256([]byte(text))
	return sum[:16]
}

// PutConversation keeps a conversation, or what has become of it since. It never waits for the disk, and in a crash the last
// moments are lost, never a part of a row. Of more than 100,000 the one goes that was longest not asked for of the key, or the
// person without one, that has most: nobody pushes out those of somebody who has fewer.
func (s *Store) PutConversation(c Conversation) error {
	if _, err := name16(c.ID); err != nil || c.Place == "" || len(c.Detail) > MaxConversationDetail || !json.Valid(c.Detail) {
		return fmt.Errorf("keeping a conversation: %w: it needs an id, a place and a detail that is JSON of at most %d bytes", ErrInvalid, MaxConversationDetail)
	}
	for _, n := range c.Names {
		if _, err := name16(n); err != nil {
			return fmt.Errorf("keeping a conversation: %w", err)
		}
	}
	s.known.add(c.ID)
	for _, n := range c.Names {
		s.known.add(n)
	}
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, again := q.waiting.talks[c.ID]; !again && len(q.waiting.talks) >= waitingRows {
		q.dropped.Add(1)
		return nil
	}
	q.waiting.talk(c)
	q.added()
	return nil
}

// talk takes a conversation as it is now, with the names that it was given before.
func (b *batch) talk(c Conversation) {
	if old, ok := b.talks[c.ID]; ok {
		names := slices.DeleteFunc(slices.Clone(old.Names), func(n string) bool { return slices.Contains(c.Names, n) })
		c.Names = append(names, c.Names...)
		c.Names = c.Names[max(0, len(c.Names)-MaxNames):]
	}
	b.talks[c.ID] = c
}

// name16 reads the digits of an id.
func name16(digits string) ([]byte, error) {
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != 16 {
		return nil, fmt.Errorf("%w: %.40q is no id of a conversation", ErrInvalid, digits)
	}
	return b, nil
}

// putConversation writes one with its names.
func (t *txn) putConversation(ctx context.Context, c Conversation) error {
	id, err := name16(c.ID)
	if err != nil {
		return err
	}
	person := c.Owner.Person
	if person == systemPerson {
		person = ""
	}
	n, err := t.Exec(ctx, putConversation, id, c.Owner.scope(), c.Place, c.Class, c.Confidence, c.Module, c.Tokens, c.Turns,
		sqlite.Stamp(c.Until), sqlite.Stamp(c.First), sqlite.Stamp(c.Used), string(c.Detail), c.Owner.Key, person)
	if err != nil || n == 0 {
		return err
	}
	for i, one := range c.Names {
		name, err := name16(one)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, putConversationName, name, id, sqlite.Stamp(c.Used)+int64(i)); err != nil {
			return err
		}
	}
	_, err = t.Exec(ctx, trimConversationNames, id, MaxNames)
	return err
}

// putConversations writes those of a batch, and keeps within the bound. Whoever flushes holds the turn of the queue.
func (s *Store) putConversations(ctx context.Context, t *txn, all map[string]Conversation) error {
	for _, c := range all {
		if err := t.putConversation(ctx, c); err != nil {
			return err
		}
	}
	if s.untrimmed += len(all); s.untrimmed < conversationsTrim {
		return nil
	}
	s.untrimmed = 0
	return t.trimConversations(ctx, int64(s.talks))
}

// holder is who has conversations, and how many.
type holder struct {
	scope []byte
	n     int64
}

// trimConversations leaves so many: each time the oldest of whoever has most goes.
func (t *txn) trimConversations(ctx context.Context, most int64) error {
	var excess int64
	if err := t.Row(ctx, countConversations).Scan(&excess); err != nil {
		return err
	}
	if excess -= most; excess <= 0 {
		return nil
	}
	rows, err := t.Query(ctx, conversationHolders)
	all, err := sqlite.Collect(rows, err, func(r sqlite.Row) (h holder, err error) { return h, r.Scan(&h.scope, &h.n) })
	if err != nil {
		return err
	}
	level, rest := leveled(all, excess)
	for _, h := range all {
		if h.n <= level {
			break
		}
		if _, err := t.Exec(ctx, trimHolder, h.scope, h.n-level); err != nil {
			return err
		}
	}
	if rest > 0 {
		_, err = t.Exec(ctx, trimHolders, level, rest)
	}
	return err
}

// leveled says to how many each holder is cut back, the largest first, so that the excess goes, and how many then have to lose
// one more. all begins with the largest.
func leveled(all []holder, excess int64) (level, rest int64) {
	var above int64 // what those before hold
	for i, h := range all {
		above += h.n
		var next int64
		if i+1 < len(all) {
			next = all[i+1].n
		}
		if n := int64(i + 1); above-n*next >= excess {
			level = (above - excess + n - 1) / n
			return level, excess - (above - n*level)
		}
	}
	return 0, 0
}

// MayKnowConversation tells, without looking on the disk, whether FindConversation can find one: where it is false there is
// none.
func (s *Store) MayKnowConversation(names []string) bool { return s.known.may(names) }

// FindConversation returns the conversation of the first of the names that is known. What waits for its group commit is not
// found. It is for the box alone: whose it is, is in the names.
func (s *Store) FindConversation(ctx context.Context, names []string) (Conversation, error) {
	if !s.known.may(names) {
		return Conversation{}, fmt.Errorf("reading a conversation: %w", ErrNotFound)
	}
	c, err := s.findConversation(ctx, names)
	if err != nil {
		return Conversation{}, fmt.Errorf("reading a conversation: %w", s.meaning(err))
	}
	return c, nil
}

func (s *Store) findConversation(ctx context.Context, names []string) (c Conversation, err error) {
	list, err := json.Marshal(names)
	if err != nil {
		return c, err
	}
	var n, until, first, used int64
	var id []byte
	var detail string
	err = s.r.Row(ctx, findConversation, string(list)).Scan(&n, &id, &c.Place, &c.Class, &c.Confidence, &c.Module, &c.Tokens, &c.Turns,
		&until, &first, &used, &detail)
	if err != nil {
		return c, err
	}
	c.ID, c.Detail = hex.EncodeToString(id), json.RawMessage(detail)
	c.Until, c.First, c.Used = sqlite.Moment(until), sqlite.Moment(first), sqlite.Moment(used)
	rows, err := s.r.Query(ctx, namesOfConversation, n)
	c.Names, err = sqlite.Collect(rows, err, func(r sqlite.Row) (string, error) {
		var name []byte
		err := r.Scan(&name)
		return hex.EncodeToString(name), err
	})
	return c, err
}

// Conversations is how many are on the disk.
func (s *Store) Conversations(ctx context.Context) (n int64, err error) {
	if err := s.r.Row(ctx, countConversations).Scan(&n); err != nil {
		return 0, fmt.Errorf("counting the conversations: %w", s.meaning(err))
	}
	return n, nil
}

// DeleteConversations forgets where conversations are: those of a key, or of a person and all their keys, or with neither
// all. It returns how many. Admins only.
func (s *Store) DeleteConversations(ctx context.Context, a, of Actor) (n int64, err error) {
	if !a.Admin {
		return 0, ErrForbidden
	}
	release, err := s.queue.hold(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	s.queue.forget(of)
	err = s.write(ctx, func(t *txn) (err error) {
		switch {
		case of.Key != "":
			n, err = t.Exec(ctx, deleteScopeConversations, of.scope())
		case of.Person != "":
			n, err = t.deleteConversationsOf(ctx, of.Person)
		default:
			n, err = t.Exec(ctx, deleteAllConversations)
		}
		if err != nil {
			return err
		}
		return t.audit(ctx, a, "conversations.delete", of.Person+of.Key, "")
	})
	if err != nil {
		return 0, fmt.Errorf("deleting conversations: %w", err)
	}
	return n, nil
}

// forget takes those out of what waits.
func (q *queue) forget(of Actor) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, c := range q.waiting.talks {
		if (of.Key == "" || c.Owner.Key == of.Key) && (of.Person == "" || c.Owner.Person == of.Person) {
			delete(q.waiting.talks, id)
		}
	}
}

// deleteConversationsOf forgets those of a person and of all their keys.
func (t *txn) deleteConversationsOf(ctx context.Context, person string) (int64, error) {
	rows, err := t.Query(ctx, keysOfPerson, person)
	keys, err := sqlite.Collect(rows, err, func(r sqlite.Row) (id string, err error) { return id, r.Scan(&id) })
	if err != nil {
		return 0, err
	}
	sum, err := t.Exec(ctx, deleteScopeConversations, Actor{Person: person}.scope())
	for _, key := range keys {
		if err != nil {
			break
		}
		var n int64
		n, err = t.Exec(ctx, deleteScopeConversations, Actor{Key: key}.scope())
		sum += n
	}
	return sum, err
}
