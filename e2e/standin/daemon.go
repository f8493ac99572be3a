package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// classify plays the classifier's daemon: a line of JSON for each question on standard input, one for each answer. What a text
// begins with says the class; some words make it fail.
func classify(args []string) error {
	note(map[string]any{"event": "start", "program": "daemon", "args": args, "env": os.Environ()})
	if os.Getenv("STANDIN_FAULT") == "exit-at-start" {
		os.Exit(3)
	}
	fmt.Println(`{"status":"ready"}`)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var q struct {
			State     string `json:"state"`
			Questions struct {
				Cls struct {
					Type         string          `json:"type"`
					Instructions string          `json:"instructions"`
					Criteria     json.RawMessage `json:"criteria"`
				} `json:"cls"`
			} `json:"questions"`
		}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			return err
		}
		note(map[string]any{"event": "question", "program": "daemon", "body": in.Text()})
		class := "short"
		for _, c := range []string{"code", "prose"} {
			if strings.HasPrefix(q.State, c) {
				class = c
			}
		}
		switch {
		case strings.Contains(q.State, "!die!"):
			os.Exit(1)
		case strings.Contains(q.State, "!odd!"):
			fmt.Println(`{"answers":{}}`)
			continue
		}
		fmt.Printf("{\"answers\":{\"cls\":{\"type\":\"choice\",\"choice\":%q,\"confidence\":0.8,\"probabilities\":{\"code\":0.1,\"prose\":0.1,\"short\":0.8}}}}\n", class)
		if strings.Contains(q.State, "!after!") { // it ends behind its answer
			return nil
		}
	}
	return in.Err()
}
