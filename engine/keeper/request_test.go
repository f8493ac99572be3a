package keeper_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/keeper"
	"onebit/engine/recipe"

	"github.com/google/go-cmp/cmp"
)

func TestRequestCarriesOptions(t *testing.T) {
	want := backend.Options{
		Model: "/models/a.gguf", Alias: "a b", Device: engine.Vulkan, Role: recipe.Chat, Context: 4096, Parallel: 2, FlashAttn: "on",
		MTP: "/models/head.gguf", DraftMax: 3, DraftPMin: "0.75", Mmproj: "/models/eyes.gguf", MoESlots: 4, MoESubst: "0.5", MoEPrefetch: 1, NoRecipes: true,
		NPUOptions: []string{"tiles=4"}, PrefillDevice: "hrx", PrefillMinTokens: 2000, Lean: true, SSDStreaming: true, MoEAuto: true, DFlash: "/models/d.gguf",
		SlotDir: "/slots/a",
	}
	own := want
	own.LlamaServer, own.Zinc, own.LibHSA, own.Recipes, own.Append = "/evil", "/evil", "/evil", "/evil", []string{"--evil"}
	b, err := json.Marshal(keeper.RequestOf(own, 1, 8080))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "evil") {
		t.Errorf("a program is in the request: %s", b)
	}
	got, err := keeper.ParseRequest(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.Child != 1 || got.Port != 8080 {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(want, got.Options()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseRequestRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no model", `{"port":8080}`, "model is missing"},
		{"a relative model", `{"model":"../m.gguf","port":8080}`, "no absolute path"},
		{"a way up", `{"model":"/models/../etc/shadow","port":8080}`, "no absolute path"},
		{"a control character", `{"model":"/m\u0000.gguf","port":8080}`, "no absolute path"},
		{"a relative draft", `{"model":"/m","mtp":"m","port":8080}`, "no absolute path"},
		{"a relative folder", `{"model":"/m","slot_dir":"slots","port":8080}`, "no absolute path"},
		{"a program", `{"model":"/m","port":8080,"llama_server":"/bin/sh"}`, "unknown field"},
		{"arguments", `{"model":"/m","port":8080,"append":["--x"]}`, "unknown field"},
		{"an environment", `{"model":"/m","port":8080,"env":["LD_PRELOAD=x"]}`, "unknown field"},
		{"an option as a name", `{"model":"/m","port":8080,"alias":"--api-key"}`, "is none"},
		{"a port of the system", `{"model":"/m","port":443}`, "port is out of range"},
		{"a negative number", `{"model":"/m","port":8080,"context":-1}`, "context is out of range"},
		{"a huge number", `{"model":"/m","port":8080,"parallel":1000000000}`, "parallel is out of range"},
		{"a device that is none", `{"model":"/m","port":8080,"device":"toaster"}`, "no device"},
		{"a plan with a port", `{"model":"/m","port":8080,"plan":true}`, "no process and no port"},
		{"a plan with a process", `{"model":"/m","child":1,"plan":true}`, "no process and no port"},
		{"a role that is none", `{"model":"/m","port":8080,"role":"root"}`, "no role"},
		{"another word", `{"model":"/m","port":8080,"flash_attn":"on --x"}`, "none of on"},
		{"no number", `{"model":"/m","port":8080,"draft_p_min":"-1"}`, "no number"},
		{"an option for the NPU", `{"model":"/m","port":8080,"npu_options":["--x=y"]}`, "KEY=VALUE"},
		{"a substitute", `{"model":"/m","port":8080,"moe_subst":"-x"}`, "cannot be right"},
		{"another device for prefill", `{"model":"/m","port":8080,"prefill_device":"cpu"}`, "is not hrx"},
		{"two", `{"model":"/m","port":8080} {}`, "more behind it"},
		{"no JSON", `start /bin/sh`, "reading the request"},
		{"too much", `{"model":"/` + strings.Repeat("m", 70000) + `","port":8080}`, "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := keeper.ParseRequest([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// FuzzParseRequest: whatever is taken for a request names no program and nothing that a command line could take for an
// option.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"model":"/models/a.gguf","alias":"a","device":"vulkan","context":4096,"flash_attn":"on","child":0,"port":8080}`))
	f.Add([]byte(`{"model":"/m","port":8080,"npu_options":["a=b"],"moe_subst":"x","draft_p_min":"0.5"}`))
	f.Add([]byte(`{"model":"/m","plan":true}`))
	f.Add([]byte(`{"model":"-m","port":8080,"alias":"-x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := keeper.ParseRequest(b)
		if err != nil {
			return
		}
		o := r.Options()
		if o.LlamaServer+o.Zinc+o.DS4+o.MLXServer+o.NPU+o.LibHSA+o.Recipes != "" || o.Append != nil {
			t.Fatalf("a program came in: %+v", o)
		}
		for _, path := range []string{o.Model, o.MTP, o.DFlash, o.Mmproj} {
			if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
				t.Fatalf("the path %q came in", path)
			}
		}
		for _, word := range append([]string{o.Model, o.Alias, o.FlashAttn, o.DraftPMin, o.MoESubst, o.PrefillDevice}, o.NPUOptions...) {
			if strings.HasPrefix(word, "-") || strings.ContainsFunc(word, unicode.IsControl) {
				t.Fatalf("the word %q came in", word)
			}
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := keeper.ParseRequest(again); err != nil || !cmp.Equal(r, same) {
			t.Fatalf("%+v became %+v, %v", r, same, err)
		}
	})
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"pid":1,"uid":70000}`))
	f.Add([]byte(`{"stdout":"x\n"}`))
	f.Add([]byte(`{"ended":true,"status":"signal: killed"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if pid, uid, err := keeper.ParseEvent(b); err == nil && (pid < 0 || uid < 0) {
			t.Fatalf("process %d of %d", pid, uid)
		}
	})
}
