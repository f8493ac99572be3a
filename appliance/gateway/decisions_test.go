package gateway_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/backendtest"
)

// serveOn puts a gateway before a child of a device.
func serveOn(t *testing.T, h http.Handler, d engine.Device) *served {
	t.Helper()
	log := &logbook{}
	g, err := gateway.New(gateway.Config{
		Model:  gateway.Model{Name: "served", Device: d, Created: time.Unix(7, 0), Backend: far(t, h), DropModel: true},
		Limits: config.Defaults(), Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	network := backendtest.NewNetwork()
	stop := network.Serve(g)
	transport := &http.Transport{DialContext: network.Dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
	})
	return &served{t: t, client: &http.Client{Transport: transport}, log: log}
}

const (
	askOpenAI    = `{"model":"x","input":"rain","questions":[{"type":"choice","instructions":"q","name":"n","choices":[{"value":true},{"value":"no"}]}]}`
	askSystemOne = `{"model":"x","state":"rain","questions":{"n":{"type":"choice","instructions":"q","criteria":{"true":null,"no":null}}}}`
)

func TestDecisions(t *testing.T) {
	const ours = `{"model":"child","method":"chat model; by text","answers":[],"usage":{"input_tokens":9,"output_tokens":0}}`
	const native = `{"model":"child","answers":{"q0":{"type":"choice","choice":"true","probabilities":{"true":0.75,"no":0.25},"confidence":0.5}},"usage":{"input_tokens":9,"output_tokens":0}}`
	for _, c := range []struct {
		name, path, body string
		device           engine.Device
		says             string
		sent, want, how  string
	}{
		{"the built-in engine takes OpenAI's form", "/v1/decisions", askOpenAI, engine.CPU, ours,
			`/v1/decisions {"input":"rain"`, `{"model":"served","method":"chat model; by text"`, "chat model; by text"},
		{"and System One's", "/systemone", askSystemOne, engine.CPU, ours,
			`/v1/systemone {"state":"rain"`, `{"model":"served","method":"chat model; by text"`, "chat model; by text"},
		{"a native model takes System One's", "/v1/systemone", askSystemOne, engine.Vulkan, native,
			`/v1/systemone {"state":"rain","questions":{"n":`, `{"model":"served","answers":{"q0"`, "native decision model; temperatures of its file"},
		{"OpenAI's is translated for it", "/v1/decisions", askOpenAI, engine.Vulkan, native,
			`/v1/systemone {"state":"rain","questions":{"q0":{"type":"choice","instructions":"q","criteria":{"true":null,"no":null}}}}`,
			`{"model":"served","method":"native decision model; temperatures of its file","answers":[{"type":"choice","name":"n","choice":true,"confidence":0.5,"probabilities":[{"value":true,"probability":0.75},`,
			"native decision model; temperatures of its file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &echo{says: c.says}
				s := serveOn(t, e, c.device)
				a := s.do(t.Context(), "POST", c.path, c.body)
				if a.status != 200 || !strings.HasPrefix(a.body, c.want) || a.header.Get("X-1bit-Decision") != c.how {
					t.Errorf("%d %q %s", a.status, a.header.Get("X-1bit-Decision"), a.body)
				}
				if !strings.HasPrefix(e.got(), c.sent) {
					t.Errorf("sent %s", e.got())
				}
				if !strings.Contains(s.log.String(), "prompt=9") {
					t.Errorf("the usage is not counted: %s", s.log)
				}
			})
		})
	}
}

func TestDecisionsRefused(t *testing.T) {
	for _, c := range []struct {
		name, body string
		device     engine.Device
		says       string
		answered   int
		status     int
		want       string
	}{
		{"no native model", askOpenAI, engine.Vulkan, `{"error":{"message":"this is no decision model"}}`, 501, 501, "built-in engine"},
		{"a server that knows nothing of it", askOpenAI, engine.Zinc, `nothing here`, 404, 501, "built-in engine"},
		{"images", askOpenAI, engine.CPU, `{"error":{"message":"\"input\": this model reads no images","type":"not_supported_error","param":"input"}}`, 501, 501, `"message":"\"input\": this model reads no images"`},
		{"an answer that is none", askOpenAI, engine.Vulkan, `{"answers":{}}`, 0, 502, "decisions"},
		{"no question", `{"input":"x","questions":[]}`, engine.CPU, ``, 0, 400, "questions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serveOn(t, &echo{says: c.says, status: c.answered}, c.device)
				a := s.do(t.Context(), "POST", "/v1/decisions", c.body)
				if a.status != c.status || !strings.Contains(a.body, c.want) {
					t.Errorf("%d %s", a.status, a.body)
				}
			})
		})
	}
}
