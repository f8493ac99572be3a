package words_test

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"onebit/store/documents/words"
)

// vocabulary has words whose stems, marks and cases differ.
var vocabulary = strings.Fields(`caresses ponies ties caress cats feed agreed plastered bled motoring sing conflated troubled sized hopping tanned
	falling hissing fizzed failing filing happy sky relational conditional rational valenci hesitanci digitizer conformabli radicalli differentli vileli
	analogousli vietnamization predication operator feudalism decisiveness hopefulness callousness formaliti sensitiviti sensibiliti triplicate formative
	formalize electriciti electrical hopeful goodness revival allowance inference airliner gyroscopic adjustable defensible irritant replacement adjustment
	dependent adoption homologou communism activate angulariti homologous effective bowdlerize probate rate cease roll by yes y a ab sss ies eed
	Café cafe CAFÉ naïve Größe größe Straße ÅNGSTRÖM şalgam şeker Ελλάδα ελλάδα ΛΌΓΟΣ λόγος Москва МОСКВА ёлка дом 東京 ÿ ǅ ﬁne Ⅳ ½ 17 E17 x86_64 don't re-use
	e\u0301te\u0301 n\u0303o हिन्दी Việt Nam kW·h 1.5 oscillations oscillate oscillating university universe agreement agreeing generalizations
	yyyyyy booing being seeing skiing crying dyeing flying zzzz aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaing logi apologi`)

func text(r *rand.Rand, n int) string {
	var all []string
	for range n {
		w := vocabulary[min(r.IntN(len(vocabulary)), r.IntN(len(vocabulary)))]
		all = append(all, strings.NewReplacer(`\u0301`, "\u0301", `\u0303`, "\u0303").Replace(w))
	}
	return strings.Join(all, " ")
}

// peer is FTS5 with the same passages.
func peer(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	for _, q := range []string{"create virtual table w using fts5(path, body, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2')",
		"insert into w (w, rank) values ('rank', 'bm25(2.0, 1.0)')", "create virtual table v using fts5vocab(w, 'row')"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// TestLikeFTS5 holds counts and scores against FTS5's.
func TestLikeFTS5(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	db, x := peer(t), words.New()
	put := func(id int64) {
		p := words.Text{ID: id, Path: text(r, 1+r.IntN(4)), Body: text(r, 5+r.IntN(60))}
		if _, err := db.Exec("insert into w (rowid, path, body) values (?, ?, ?)", p.ID, p.Path, p.Body); err != nil {
			t.Fatal(err)
		}
		if !x.Put(p) {
			t.Fatal("not taken")
		}
	}
	compare := func() {
		t.Helper()
		for range 25 {
			var q words.Query
			var match []string
			for range 1 + r.IntN(6) {
				term := text(r, 1)
				w := x.Words(term)
				if len(w) != 1 {
					continue
				}
				var n int
				if err := db.QueryRow("select count(*) from w where w match ?", `"`+term+`"`).Scan(&n); err != nil {
					t.Fatal(err)
				}
				if n != w[0].Passages {
					t.Errorf("%s is in %d passages, FTS5 says %d", term, w[0].Passages, n)
				}
				q.Words = append(q.Words, w...)
				match = append(match, `"`+term+`"`)
			}
			if len(match) == 0 {
				continue
			}
			q.K = 20
			got := x.Search(q)
			rows, err := db.Query("select rowid, -rank from w where w match ?", strings.Join(match, " OR "))
			if err != nil {
				t.Fatal(err)
			}
			want := map[int64]float64{}
			for rows.Next() {
				var id int64
				var score float64
				if err := rows.Scan(&id, &score); err != nil {
					t.Fatal(err)
				}
				want[id] = score
			}
			if len(got) != min(20, len(want)) {
				t.Errorf("%s: %d hits, FTS5 has %d", match, len(got), len(want))
			}
			for i, h := range got {
				if math.Abs(h.Score-want[h.ID]) > 1e-4*(1+want[h.ID]) {
					t.Fatalf("%s: passage %d has %v, FTS5 says %v", match, h.ID, h.Score, want[h.ID])
				}
				if i > 0 && h.Score > got[i-1].Score {
					t.Fatalf("%s: not in order", match)
				}
				delete(want, h.ID)
			}
			for id, score := range want {
				if len(got) > 0 && score > got[len(got)-1].Score+1e-4 {
					t.Fatalf("%s: passage %d with %v is missing", match, id, score)
				}
			}
		}
	}
	for id := range int64(400) {
		put(10 + 3*id)
	}
	compare()
	x.Trim()
	for id := int64(2000); id < 2100; id++ {
		put(id)
	}
	compare()
	for _, run := range [][2]int64{{10, 40}, {500, 800}, {1990, 2005}, {2099, 9999}, {5, 5}} {
		if _, err := db.Exec("delete from w where rowid between ? and ?", run[0], run[1]); err != nil {
			t.Fatal(err)
		}
		x.Delete(run[0], run[1])
		compare()
	}
	put(3000)
	compare()
	x.Delete(0, 1<<40)
	if n := x.Len(); n != 0 || len(x.Search(words.Query{Words: x.Words("feed"), K: 1})) != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestStems holds every word's stem against FTS5's, by what counts as the same.
func TestStems(t *testing.T) {
	db, x := peer(t), words.New()
	r := rand.New(rand.NewPCG(3, 4))
	endings := strings.Fields("s es ies ed eed ing at bl iz y ational tional enci anci izer logi bli alli entli eli ousli ization ation ator alism iveness fulness ousness aliti iviti biliti ical ness icate iciti ful ative alize al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize e l ll")
	var all []string
	for range 800 {
		var w []byte
		for range 1 + r.IntN(5) {
			w = append(w, "bcdstwxyzaeiouy"[r.IntN(15)])
		}
		all = append(all, string(w)+endings[r.IntN(len(endings))]+[]string{"", endings[r.IntN(len(endings))]}[r.IntN(2)])
	}
	all = append(all, vocabulary...)
	for i, w := range all {
		if _, err := db.Exec("insert into w (rowid, path, body) values (?, '', ?)", i+1, w); err != nil {
			t.Fatal(err)
		}
		x.Put(words.Text{ID: int64(i + 1), Body: w})
	}
	for _, w := range all {
		if strings.ContainsAny(w, `'"\`) || len(x.Words(w)) != 1 {
			continue
		}
		var want, got []int64
		rows, err := db.Query("select rowid from w where w match ?", `"`+w+`"`)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				t.Fatal(err)
			}
			want = append(want, id)
		}
		for _, h := range x.Search(words.Query{Words: x.Words(w), K: len(all)}) {
			got = append(got, h.ID)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s is found in %v, FTS5 finds %v", w, got, want)
		}
	}
}

func TestOrderOfIDs(t *testing.T) {
	x := words.New()
	if !x.Put(words.Text{ID: 5, Body: "a"}) || x.Put(words.Text{ID: 5, Body: "b"}) || x.Put(words.Text{ID: 4, Body: "c"}) || x.Len() != 1 {
		t.Error("ids that do not ascend are taken")
	}
}

func TestAllowAndMore(t *testing.T) {
	x := words.New()
	for id := range int64(100) {
		x.Put(words.Text{ID: id, Body: fmt.Sprintf("pump number%d of many", id)})
	}
	got := x.Search(words.Query{Words: x.Words("number7"), More: []words.Hit{{ID: 8, Score: 100}, {ID: 5000, Score: 9}}, K: 3})
	if len(got) != 2 || got[0].ID != 8 || got[1].ID != 7 {
		t.Errorf("%v", got)
	}
	got = x.Search(words.Query{Words: append(x.Words("pump"), x.Words("number7")...), K: 3, Allow: func(id int64) bool { return id > 50 }})
	if len(got) != 3 || got[0].ID != 51 || got[2].ID != 53 {
		t.Errorf("%v", got)
	}
}

func FuzzText(f *testing.F) {
	for _, w := range vocabulary {
		f.Add(w, "x")
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		x := words.New()
		x.Put(words.Text{ID: 1, Path: path, Body: body})
		for _, w := range x.Words(body) {
			if w.Passages != 1 {
				t.Errorf("a word of the passage is in %d", w.Passages)
			}
		}
	})
}

func BenchmarkSearch(b *testing.B) {
	z := rand.NewZipf(rand.New(rand.NewPCG(9, 9)), 1.07, 8, 60_000)
	x := words.New()
	body := func(n int) string {
		var all []string
		for range n {
			all = append(all, fmt.Sprintf("w%d", z.Uint64()))
		}
		return strings.Join(all, " ")
	}
	for id := range int64(100_000) {
		x.Put(words.Text{ID: id, Body: body(60)})
	}
	x.Trim()
	b.ReportMetric(float64(x.Bytes())/(1<<20), "MiB")
	for b.Loop() {
		var q words.Query
		for _, w := range strings.Fields(body(8)) {
			q.Words = append(q.Words, x.Words(w)...)
		}
		q.K = 50
		x.Search(q)
	}
}
