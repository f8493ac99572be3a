package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesTests holds that each test which SECURITY.md names as a proof is there, in the folder that it says.
func TestSecurityNamesTests(t *testing.T) {
	paper, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(paper), "## What was done to others")
	table, _, _ = strings.Cut(table, "\n## ")
	word := regexp.MustCompile("`([a-z0-9/]+)`|\\b(?:Test|Fuzz)[A-Z][A-Za-z0-9]*")
	written := map[string]string{}
	named := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		folder := ""
		for _, m := range word.FindAllStringSubmatch(cells[3], -1) {
			if m[1] != "" {
				folder = m[1]
				continue
			}
			named++
			if _, ok := written[folder]; !ok {
				written[folder] = testsIn(t, filepath.Join("..", folder))
			}
			if !strings.Contains(written[folder], "func "+m[0]+"(") {
				t.Errorf("there is no %s in %q", m[0], folder)
			}
		}
	}
	if named < 40 {
		t.Errorf("only %d tests are named", named)
	}
}

func testsIn(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}
