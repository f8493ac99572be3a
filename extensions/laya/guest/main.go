//go:build wasip1

// Command guest is the built-in classifier as a module for the box.
package main

import (
	sdk "onebit/extensions/guest/go"
	"onebit/extensions/laya"
)

// What a call works with. The weights are unpacked once, before the snapshot that every call starts from.
var (
	model    = load()
	features laya.Features
	scores   [laya.Classes]sdk.Score
)

func load() *laya.Model {
	m, err := laya.Builtin()
	if err != nil {
		panic(err)
	}
	return m
}

//go:wasmexport laya_classify
func classify(address, length uint32) uint64 { return sdk.Run(address, length, decide) }

// decide looks at the last user message alone: what a client's program put into the system prompt says nothing about what its
// user wants. A message without text is no opinion.
func decide(r *sdk.Request) sdk.Decision {
	text := bytes(r.Head)
	if len(text) == 0 && r.Bytes < laya.LongBytes {
		return sdk.Decision{}
	}
	a := model.Classify(text, r.Bytes, &features)
	for c := range scores {
		scores[c] = sdk.Score{Class: laya.Class(c).String(), Value: round(a.Scores[c])}
	}
	return sdk.Decision{Action: "route", Class: a.Class.String(), Confidence: round(a.Confidence), Scores: scores[:]}
}

// round keeps four digits.
func round(v float32) float64 { return float64(int(float64(v)*1e4+0.5)) / 1e4 }

func main() {}
