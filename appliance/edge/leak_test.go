package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
)

// TestBoxLeavesNothing starts and stops boxes that were used over all protocols, and counts goroutines.
func TestBoxLeavesNothing(t *testing.T) {
	use := func() {
		t.Run("one", func(t *testing.T) {
			b := serve(t, config(), says("here"))
			for _, p := range protocols {
				get(t, b.client(t, p), "https://testbox.local/")
			}
		})
	}
	use() // what is made once for all
	before := runtime.NumGoroutine()
	for range 5 {
		use()
	}
	until(t, func() bool { return runtime.NumGoroutine() <= before+2 })
}

// TestReloadUnderLoad changes handler and names a hundred times under streams that go on, and counts goroutines.
func TestReloadUnderLoad(t *testing.T) {
	b := serve(t, config(), nil)
	end := make(chan bool)
	b.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begun ")
		http.NewResponseController(w).Flush()
		select {
		case <-end:
			io.WriteString(w, "ended")
		case <-r.Context().Done():
		}
	}))
	var streams []*http.Response
	for _, p := range protocols {
		res, err := b.client(t, p).Get("https://testbox.local/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		streams = append(streams, res)
	}
	c := b.client(t, "h3")
	before := 0
	for i := range 100 {
		b.SetHandler(says(fmt.Sprint(i)))
		if err := b.SetNames("testbox", []string{fmt.Sprintf("n%d.lan", i)}); err != nil {
			t.Fatal(err)
		}
		if _, body := get(t, c, "https://testbox.local/"); body != fmt.Sprint(i) {
			t.Errorf("after change %d: %q", i, body)
		}
		if i == 10 {
			before = runtime.NumGoroutine()
		}
	}
	until(t, func() bool { return runtime.NumGoroutine() <= before+3 })
	close(end)
	for i, res := range streams {
		if body, err := io.ReadAll(res.Body); string(body) != "begun ended" || err != nil {
			t.Errorf("%s: %q, %v", protocols[i], body, err)
		}
	}
}
