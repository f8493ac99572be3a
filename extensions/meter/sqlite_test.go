package meter_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/meter"
	"onebit/extensions/module"
)

// sqliteModule carries SQLite, built from C with SIMD and bulk memory. It is fetched to be run here and nowhere else.
const sqliteModule = "github.com/ncruces/go-sqlite3@v0.25.0"

// sqlite is SQLite in a guest, with a host that answers 0 to all that it asks.
type sqlite struct {
	api.Module
	t  *testing.T
	db uint64
}

// fetchSQLite brings the module.
func fetchSQLite(t *testing.T) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", sqliteModule).Output()
	var m struct{ Dir string }
	if err != nil || json.Unmarshal(out, &m) != nil {
		t.Fatalf("fetching %s: %v\n%s", sqliteModule, err, out)
	}
	b, err := os.ReadFile(filepath.Join(m.Dir, "embed", "sqlite3.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openSQLite(t *testing.T, b []byte, l module.Limits) *sqlite {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	st := newStage(t, wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(l.Pages), specification(t))
	m, err := st.r.CompileModule(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	host := st.r.NewHostModuleBuilder("env")
	for _, f := range m.ImportedFunctions() {
		if from, name, _ := f.Import(); from == "env" {
			zero := func(_ context.Context, _ api.Module, stack []uint64) {
				if len(f.ResultTypes()) > 0 {
					stack[0] = 0
				}
			}
			host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(zero), f.ParamTypes(), f.ResultTypes()).Export(name)
		}
	}
	if _, err := host.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	s := &sqlite{t: t}
	if s.Module, err = st.r.InstantiateModule(ctx, m, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize")); err != nil {
		t.Fatal(err)
	}
	handle := s.call("sqlite3_malloc64", 8)
	if rc := s.call("sqlite3_open_v2", s.text(":memory:"), handle, 2|4|0x80, 0); rc != 0 {
		t.Fatalf("opening answers %d", rc)
	}
	s.db = s.word(handle)
	return s
}

// call calls one function; a counted one has all the stack and work that it wants.
func (s *sqlite) call(name string, args ...uint64) uint64 {
	s.t.Helper()
	if g := s.ExportedGlobal(meter.Stack); g != nil {
		g.(api.MutableGlobal).Set(meter.StackSlots)
	}
	r, err := s.ExportedFunction(name).Call(context.WithoutCancel(s.t.Context()), args...)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	if len(r) == 0 {
		return 0
	}
	return r[0]
}

func (s *sqlite) text(v string) uint64 {
	at := s.call("sqlite3_malloc64", uint64(len(v)+1))
	if !s.Memory().WriteString(uint32(at), v+"\x00") {
		s.t.Fatal("no memory")
	}
	return at
}

func (s *sqlite) word(at uint64) uint64 {
	b, ok := s.Memory().Read(uint32(at), 4)
	if !ok {
		s.t.Fatal("outside of memory")
	}
	return uint64(binary.LittleEndian.Uint32(b))
}

func (s *sqlite) read(at uint64) string {
	b, ok := s.Memory().Read(uint32(at), s.Memory().Size()-uint32(at))
	if !ok || at == 0 {
		return "NULL"
	}
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}

// query runs one statement and returns its rows.
func (s *sqlite) query(sql string) string {
	stmt := s.call("sqlite3_malloc64", 8)
	at := s.text(sql)
	if rc := s.call("sqlite3_prepare_v3", s.db, at, uint64(len(sql)+1), 0, stmt, 0); rc != 0 {
		return fmt.Sprintf("error %d: %s", rc, s.read(s.call("sqlite3_errmsg", s.db)))
	}
	statement := s.word(stmt)
	var rows strings.Builder
	rc := s.call("sqlite3_step", statement)
	for ; rc == 100; rc = s.call("sqlite3_step", statement) {
		for c := range s.call("sqlite3_column_count", statement) {
			fmt.Fprintf(&rows, "%s|", s.read(s.call("sqlite3_column_text", statement, c)))
		}
		rows.WriteByte('\n')
	}
	if rc != 101 {
		fmt.Fprintf(&rows, "error %d: %s", rc, s.read(s.call("sqlite3_errmsg", s.db)))
	}
	s.call("sqlite3_finalize", statement)
	s.call("sqlite3_free", at)
	s.call("sqlite3_free", stmt)
	return rows.String()
}

// sqlScript is SQL that visits much of SQLite: trees, sorting, windows, recursion, JSON, floats, text, errors.
func sqlScript() []string {
	list := []string{
		"CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b REAL, c BLOB)",
		"CREATE INDEX ta ON t (a, b DESC)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 20000) INSERT INTO t SELECT i, printf('%x-%05d', i*7919 % 1009, i), i*0.37, zeroblob(i%13) FROM n",
		"SELECT count(*), sum(b), avg(length(c)), min(a), max(a), total(id % 7) FROM t",
		"SELECT substr(a, 1, 2) AS p, count(*), round(sum(b), 3) FROM t GROUP BY p HAVING count(*) > 50 ORDER BY 2 DESC, 1 LIMIT 30",
		"SELECT id, b, row_number() OVER w, sum(id) OVER w, lag(a) OVER w FROM t WINDOW w AS (PARTITION BY id%10 ORDER BY b DESC) ORDER BY id LIMIT 25",
		"SELECT x.id, y.id FROM t x JOIN t y ON y.a > x.a AND y.id < 40 WHERE x.id < 40 ORDER BY x.a, y.a LIMIT 60",
		"WITH RECURSIVE f(n, a, b) AS (VALUES(1, 0, 1) UNION ALL SELECT n+1, b, a+b FROM f WHERE n < 90) SELECT group_concat(a) FROM f",
		"SELECT json_group_object(k, v) FROM (SELECT a AS k, json_array(id, b, hex(c)) AS v FROM t WHERE id % 1999 = 5)",
		"SELECT json_extract('{\"a\":[1,{\"b\":\"é世\"}]}', '$.a[1].b'), upper('straße'), like('%x_z', 'wxyz'), replace('aXbX', 'X', 'éé'), unicode('世'), quote(x'00ff')",
		"SELECT 1/0, 7 % 0, 1e308*10, -9223372036854775808 / -1, cast('12.5abc' AS REAL), 0.1+0.2, abs(-3.25), round(2.5), 5 << 62, ~7, 1 IS NOT NULL",
		"SELECT abs(-9223372036854775808)",
		"SELECT * FROM nowhere", "SELEC 1", "INSERT INTO t (id) VALUES (5)",
		"CREATE TRIGGER tr AFTER DELETE ON t BEGIN INSERT INTO t (a) VALUES ('gone ' || old.id); END",
		"BEGIN", "DELETE FROM t WHERE id % 3 = 0", "SELECT count(*), sum(length(a)) FROM t", "ROLLBACK", "SELECT count(*) FROM t",
		"UPDATE t SET a = a || char(id), b = b * -1 WHERE id BETWEEN 100 AND 5000", "DELETE FROM t WHERE id > 19000",
		"CREATE VIRTUAL TABLE s USING fts5(body)", "SELECT strftime('%Y-%m-%d %H:%M', 1700000000.5, 'unixepoch', '+1 month', 'weekday 1'), julianday('2026-02-29')",
		"ANALYZE", "VACUUM", "PRAGMA integrity_check", "EXPLAIN QUERY PLAN SELECT * FROM t WHERE a > 'm' ORDER BY b", "SELECT sql FROM sqlite_schema", "SELECT sum(b), max(a) FROM t",
	}
	return list
}

// TestSQLite runs one script in SQLite before and after the rewrite: all answers are the same, and so is its memory.
func TestSQLite(t *testing.T) {
	if os.Getenv("ONEBIT_ALL") == "" {
		t.Skip("set ONEBIT_ALL to fetch SQLite and run it twice")
	}
	b := fetchSQLite(t)
	l := module.Default()
	l.Imports, l.Exports = 128, 512 // it was not made for hosts like ours; its code is within the bounds
	after, err := meter.Rewrite(b, l)
	if err != nil {
		t.Fatal(err)
	}
	plain, counted := openSQLite(t, b, l), openSQLite(t, after, l)
	rows := 0
	for _, sql := range sqlScript() {
		want, got := plain.query(sql), counted.query(sql)
		if want != got {
			t.Errorf("%s\nbefore: %s\nafter: %s", sql, want, got)
		}
		rows += strings.Count(want, "\n")
	}
	hash := func(s *sqlite) string {
		m, _ := s.Memory().Read(0, s.Memory().Size())
		h := fnv.New64a()
		h.Write(m)
		return fmt.Sprintf("%x, %d pages", h.Sum(nil), len(m)>>16)
	}
	if a, b := hash(plain), hash(counted); a != b {
		t.Errorf("memory differs: %s, %s", a, b)
	}
	if rows < 130 {
		t.Errorf("%d rows show little", rows)
	}
	t.Logf("%d KiB of module, %d rows, memory %s", len(b)>>10, rows, hash(plain))
}
