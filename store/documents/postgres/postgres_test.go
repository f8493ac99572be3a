package postgres_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"onebit/store/documents"
	"onebit/store/documents/keepertest"
	"onebit/store/documents/postgres"
)

// TestKeeper runs against a real PostgreSQL with pgvector, which e2e/postgres.sh
// starts for `make test-all`.
func TestKeeper(t *testing.T) {
	dsn := os.Getenv("ONEBIT_POSTGRES")
	if dsn == "" {
		if os.Getenv("ONEBIT_ALL") != "" {
			t.Fatal(`ONEBIT_POSTGRES is not set: eval "$(bash e2e/postgres.sh start)"`)
		}
		t.Skip(`slow: make test-all, or eval "$(bash e2e/postgres.sh start)"`)
	}
	n := 0
	keepertest.Run(t, func(t *testing.T, now func() time.Time) documents.Keeper {
		n++
		k, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Schema: fmt.Sprintf("test_%d_%d", os.Getpid(), n), Clock: now})
		if err != nil {
			t.Fatal(err)
		}
		return k
	})
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	for _, dsn := range []string{"postgres://u:hunter2@[::1/x", "host=/nowhere user=u password=hunter2 dbname=x connect_timeout=1"} {
		_, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}
