package doctor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"onebit/engine"
)

// Print writes a report as tables for people.
func Print(w io.Writer, r Report) error {
	out := &strings.Builder{}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Status, c.Name, printable(c.Text))
		if c.Remedy != "" {
			fmt.Fprintf(t, "\t\t-> %s\n", printable(c.Remedy))
		}
	}
	_ = t.Flush() // into memory
	fmt.Fprintln(out)
	var usable []engine.Device
	for _, d := range r.Devices {
		word := "no "
		if d.Usable {
			word = "yes"
			usable = append(usable, d.Device)
		}
		fmt.Fprintf(t, "%s\t--device %s\t%s\n", word, d.Device, printable(d.Why))
	}
	_ = t.Flush() // into memory
	switch {
	case len(usable) == 0:
		fmt.Fprint(out, "\nNothing here can serve a model yet.\n")
	default:
		fmt.Fprintf(out, "\nReady: 1bit serve -m MODEL.gguf --device auto (or %s)\n", list(usable))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// list joins devices by commas.
func list(devices []engine.Device) string {
	words := make([]string, len(devices))
	for i, d := range devices {
		words[i] = string(d)
	}
	return strings.Join(words, ", ")
}

// printable keeps text from outside from disturbing the terminal and the table.
func printable(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\uFFFD' {
			return -1
		}
		return r
	}, s)
}
