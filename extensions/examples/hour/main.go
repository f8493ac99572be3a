//go:build wasip1

// Command hour chooses the models by the time of day: cheap current at night, fast answers at work.
package main

import laya "onebit/extensions/guest/go"

// span is part of the day, in minutes since midnight; one that ends before it begins goes over midnight.
type span struct {
	from, to int
	models   []string
}

var (
	spans  []span
	offset int // minutes east of Greenwich
)

//go:wasmexport laya_configure
func configure(address, length uint32) uint64 {
	return laya.Configure(address, length, func(config laya.JSON) (why string) {
		offset = int(config.Get("utc_offset_minutes").Number())
		config.Get("spans").Each(func(_ string, s laya.JSON) {
			from, okFrom := minutes(s.Get("from").Text())
			to, okTo := minutes(s.Get("to").Text())
			models := s.Get("models").Texts()
			if !okFrom || !okTo || len(models) == 0 {
				why = "a span needs from and to, such as 08:30, and models"
			}
			spans = append(spans, span{from, to, models})
		})
		return why
	})
}

// minutes reads a time such as 08:30.
func minutes(s string) (int, bool) {
	if len(s) != 5 || s[2] != ':' {
		return 0, false
	}
	n := 0
	for _, i := range [4]int{0, 1, 3, 4} {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n = (int(s[0]-'0')*10+int(s[1]-'0'))*60 + int(s[3]-'0')*10 + int(s[4]-'0')
	return n, n <= 24*60 && s[3] < '6'
}

//go:wasmexport laya_route
func route(address, length uint32) uint64 { return laya.Run(address, length, decide) }

func decide(r *laya.Request) laya.Decision {
	if len(spans) == 0 {
		return laya.Decision{}
	}
	const day = 24 * 60
	now := ((int(laya.Now()/60_000)+offset)%day + day) % day
	for _, s := range spans {
		if in := now >= s.from && now < s.to; in || s.to < s.from && (now >= s.from || now < s.to) {
			return serve(r, s.models)
		}
	}
	return laya.Decision{}
}

// serve routes to the healthy candidates of the models, in the order of the list.
func serve(r *laya.Request, models []string) laya.Decision {
	var ids []string
	for _, m := range models {
		for _, c := range r.Candidates {
			if c.Healthy && c.Model == m {
				ids = append(ids, c.ID)
			}
		}
	}
	if len(ids) == 0 {
		return laya.Decision{}
	}
	return laya.To(ids...).Because("the models of this hour")
}

func main() {}
